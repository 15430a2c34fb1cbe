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

struct StoreSize {
  std::int64_t tokens, width, pairs;
  RopeLayout layout;
};

Case<StoreLatentArgs> latent_case(const StoreSize& size, DType dtype) {
  Random random(static_cast<std::uint64_t>(size.width));
  const std::int64_t latent = size.width;
  const auto c = std::make_shared<const StoreCase>(size.tokens, latent + 2 * size.pairs, latent, latent, size.pairs, dtype, random);
  // As for rms_norm; the rotated part is the reference's to the bit.
  const auto allowed = [c, latent](std::string_view) {
    return store_bounds(*c, [latent](std::int64_t i, double value) {
      return i >= latent ? 0.0 : kUlp * (static_cast<double>(latent) / 2 + 8) * std::fabs(value) + 0x1p-126;
    });
  };
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

Cases<StoreRowsArgs> cases_of(const StoreRowsArgs*, const Key&, const Shapes& shapes) {
  using enum RopeLayout;
  return store_cases<StoreRowsArgs>(
      {{1, shapes.kv_heads * shapes.head_dim, 1, interleaved}, {7, 15, 1, interleaved}, {33, 130, 1, interleaved}}, shapes.cache,
      rows_case);
}

}  // namespace reckoner::admission
