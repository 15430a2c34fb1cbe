// Cases of the ops that write into caches.
#include "diagnose/admission/case.h"
#include "diagnose/admission/rows_cases.h"

namespace reckoner::admission {
namespace {

// A cache for tokens of two sequences, and what is stored of them.
struct StoreCase {
  std::vector<TokenCase> tokens;
  OwnedCache cache;
  OwnedPlaces places;
  OwnedTensor x, weight, bias;
  Angles angles;

  StoreCase(std::int64_t count, std::int64_t width, std::int64_t quantised, std::int64_t normed, std::int64_t pairs, DType dtype,
            Random& random)
      : tokens(distinct_places(count, random)),
        cache(dtype, width, quantised, {90, 90}, random),
        places(tokens, cache),
        x({count, width}, random.floats(count * width)),
        weight({normed}, random.floats(normed)),
        bias({normed}, random.floats(normed)),
        angles(count, pairs, random) {}
  // Of the same tokens in a cache with the same pages.
  StoreCase(const StoreCase& other, std::int64_t width, DType dtype, Random& random)
      : tokens(other.tokens),
        cache(dtype, width, width, other.cache, random),
        places(tokens, cache),
        x({std::ssize(tokens), width}, random.floats(std::ssize(tokens) * width)),
        weight({width}, random.floats(width)),
        bias({width}, random.floats(width)),
        angles(std::ssize(tokens), 1, random) {}
};

// `bound(value)` of each stored element that is not to be the reference's to the bit, and one step of what the cache can hold.
template <class Bound>
std::vector<double> store_bounds(const StoreCase& c, const Bound& bound) {
  std::vector<double> allowed;
  for (const TokenCase& token : c.tokens) {
    const std::vector<float> row = c.cache.row(token.sequence, token.position);
    for (std::int64_t i = 0; i < std::ssize(row); ++i) {
      const double own = bound(i, static_cast<double>(row[static_cast<std::size_t>(i)]));
      allowed.push_back(own == 0 ? 0 : own + step_at(*c.cache, row, i));
    }
  }
  return allowed;
}

// As for rms_norm; the rotated part is the reference's to the bit.
auto latent_bound(std::int64_t latent) {
  return [latent](std::int64_t i, double value) {
    return i >= latent ? 0.0 : kUlp * (static_cast<double>(latent) / 2 + 8) * std::fabs(value) + 0x1p-126;
  };
}

// All that is rotated and stored before attention.
struct RotateCase {
  StoreCase latent, key;
  OwnedTensor q, index_q;
  std::int64_t first;
  bool has_indexer;

  RotateCase(std::int64_t tokens, std::int64_t heads, std::int64_t nope, std::int64_t latent_width, std::int64_t pairs,
             std::int64_t index_heads, std::int64_t index_dim, DType dtype, Random& random)
      : latent(tokens, latent_width + 2 * pairs, latent_width, latent_width, pairs, dtype, random),
        key(latent, index_dim, dtype, random),
        q({tokens, heads, nope + 2 * pairs}, random.floats(tokens * heads * (nope + 2 * pairs))),
        index_q({tokens, index_heads, index_dim}, random.floats(tokens * index_heads * index_dim)),
        first(nope),
        has_indexer(index_heads > 0) {}

  RotateAndStoreArgs args(RopeLayout layout, RopeLayout index_layout) const {
    RotateAndStoreArgs args{.cosine = *latent.angles.cosine,
                            .sine = *latent.angles.sine,
                            .places = *latent.places,
                            .q = *q,
                            .first = first,
                            .layout = layout,
                            .kv = *latent.x,
                            .latent_weight = *latent.weight,
                            .latent_epsilon = 1e-6f,
                            .latent = *latent.cache};
    if (!has_indexer) return args;
    args.index_q = *index_q;
    args.index_layout = index_layout;
    args.k = *key.x;
    args.k_weight = *key.weight;
    args.k_bias = *key.bias;
    args.k_epsilon = 1e-6f;
    args.index_keys = *key.cache;
    return args;
  }
};

struct StoreSize {
  std::int64_t tokens, width, pairs;
  RopeLayout layout;
};

Case<StoreLatentArgs> latent_case(const StoreSize& size, DType dtype) {
  Random random(static_cast<std::uint64_t>(size.width));
  const std::int64_t latent = size.width;
  const auto c = std::make_shared<const StoreCase>(size.tokens, latent + 2 * size.pairs, latent, latent, size.pairs, dtype, random);
  const auto allowed = [c, latent](std::string_view) { return store_bounds(*c, latent_bound(latent)); };
  return {.shapes = c->x->shape.to_string(),
          .memory = c,
          .args = {.kv = *c->x,
                   .weight = *c->weight,
                   .epsilon = 1e-6f,
                   .layout = size.layout,
                   .cosine = *c->angles.cosine,
                   .sine = *c->angles.sine,
                   .places = *c->places,
                   .cache = *c->cache},
          .allowed = allowed};
}

// A normalised element is at most sqrt(width), and |weight|, |bias| <= 1. Mean and variance are float sums: (width + 4) ulp of the largest
// distance to the mean each; after that a few roundings, of which the rotation adds up two elements.
double layer_norm_bound(std::int64_t width, DType dtype) {
  const auto n = static_cast<double>(width);
  const double absolute = 2 * kUlp * ((2 * n + 8) * std::sqrt(n) + 8);
  return absolute + (dtype == DType::bf16 ? 0x1p-8 * absolute : 0.0);
}

Case<StoreIndexKeyArgs> index_key_case(const StoreSize& size, DType dtype) {
  Random random(static_cast<std::uint64_t>(size.width));
  const auto c = std::make_shared<const StoreCase>(size.tokens, size.width, size.width, size.width, size.pairs, dtype, random);
  const double bound = layer_norm_bound(size.width, dtype);
  return {.shapes = c->x->shape.to_string(),
          .memory = c,
          .args = {.k = *c->x,
                   .weight = *c->weight,
                   .bias = *c->bias,
                   .epsilon = 1e-6f,
                   .layout = size.layout,
                   .cosine = *c->angles.cosine,
                   .sine = *c->angles.sine,
                   .places = *c->places,
                   .cache = *c->cache},
          .allowed = [c, bound](std::string_view) { return store_bounds(*c, [bound](std::int64_t, double) { return bound; }); }};
}

Case<StoreRowsArgs> rows_case(const StoreSize& size, DType dtype) {
  Random random(static_cast<std::uint64_t>(size.width));
  const auto c = std::make_shared<const StoreCase>(size.tokens, size.width, size.width, 1, 1, dtype, random);
  return {.shapes = c->x->shape.to_string(), .memory = c, .args = {.x = *c->x, .places = *c->places, .cache = *c->cache}};
}

struct RotateSize {
  std::int64_t tokens, heads, nope, latent, pairs;
  std::int64_t index_heads, index_dim;  // no heads: no indexer
  RopeLayout layout, index_layout;
};

Case<RotateAndStoreArgs> rotate_case(const RotateSize& size, DType dtype) {
  Random random(static_cast<std::uint64_t>(size.latent));
  const auto c = std::make_shared<const RotateCase>(size.tokens, size.heads, size.nope, size.latent, size.pairs, size.index_heads,
                                                    size.index_dim, dtype, random);
  const auto allowed = [c, size, dtype](std::string_view output) {
    if (output == "latent") return store_bounds(c->latent, latent_bound(size.latent));
    const double bound = layer_norm_bound(size.index_dim, dtype);
    if (output == "index_keys") return store_bounds(c->key, [bound](std::int64_t, double) { return bound; });
    return std::vector<double>();  // what is rotated only agrees to the bit
  };
  return {.shapes = c->q->shape.to_string(), .memory = c, .args = c->args(size.layout, size.index_layout), .allowed = allowed};
}

template <class Args, class Make>
Cases<Args> store_cases(const std::vector<StoreSize>& sizes, DType dtype, const Make& make) {
  Cases<Args> cases;
  for (const StoreSize& size : sizes) cases.push_back([=] { return make(size, dtype); });
  return cases;
}

}  // namespace

Cases<StoreLatentArgs> cases_of(const StoreLatentArgs*, const Key&, const Shapes& shapes) {
  using enum RopeLayout;
  return store_cases<StoreLatentArgs>({{1, shapes.latent, shapes.rope / 2, interleaved}, {7, 51, 8, interleaved}, {33, 32, 1, half_split}},
                                      shapes.cache, latent_case);
}

Cases<StoreIndexKeyArgs> cases_of(const StoreIndexKeyArgs*, const Key&, const Shapes& shapes) {
  using enum RopeLayout;
  const std::int64_t pairs = std::min(shapes.rope, shapes.index_dim) / 2;
  return store_cases<StoreIndexKeyArgs>({{1, shapes.index_dim, pairs, interleaved},
                                         {3, shapes.index_dim, pairs, half_split},
                                         {7, 15, 3, interleaved},
                                         {33, 40, 8, half_split}},
                                        shapes.cache, index_key_case);
}

Cases<RotateAndStoreArgs> cases_of(const RotateAndStoreArgs*, const Key&, const Shapes& shapes) {
  using enum RopeLayout;
  const std::int64_t heads = std::min<std::int64_t>(shapes.heads, 8), index_heads = std::min<std::int64_t>(shapes.index_heads, 8);
  const std::int64_t pairs = std::min(shapes.rope, shapes.index_dim) / 2;
  const std::vector<RotateSize> sizes = {
      {2, heads, shapes.nope, shapes.latent, pairs, index_heads, shapes.index_dim, interleaved, half_split},
      {1, heads, shapes.nope, shapes.latent, shapes.rope / 2, 0, 1, interleaved, interleaved},
      {33, 3, 7, 51, 8, 5, 40, half_split, interleaved}};
  Cases<RotateAndStoreArgs> cases;
  for (const RotateSize& size : sizes) cases.push_back([=, cache = shapes.cache] { return rotate_case(size, cache); });
  return cases;
}

Cases<StoreRowsArgs> cases_of(const StoreRowsArgs*, const Key&, const Shapes& shapes) {
  using enum RopeLayout;
  return store_cases<StoreRowsArgs>(
      {{1, shapes.kv_heads * shapes.head_dim, 1, interleaved}, {7, 15, 1, interleaved}, {33, 130, 1, interleaved}}, shapes.cache,
      rows_case);
}

}  // namespace reckoner::admission
