// The kernels that write into the cache, against the references.
#include "cases_rows.h"

namespace reckoner {
namespace {

// The cache holds what it held before, but for the tokens' rows: those are `expected` within `bound(token, element)`, plus one step
// of what the cache can hold; where the bound is 0 the bits agree.
template <class Bound>
void expect_stored(const OwnedCache& found, const OwnedCache& expected, const std::vector<TokenCase>& tokens, const Bound& bound) {
  const std::vector<std::byte> bytes = found.bytes();
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::vector<float> row = found.row(tokens[t].sequence, tokens[t].position);
    const std::vector<float> wanted = expected.row(tokens[t].sequence, tokens[t].position);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double allowed = bound(static_cast<std::int64_t>(t), static_cast<std::int64_t>(i));
      const double step = allowed == 0 ? 0 : step_at(*found, wanted, static_cast<std::int64_t>(i));
      ASSERT_NEAR(row[i], wanted[i], allowed + step) << "token " << t << " element " << i;
    }
  }
  for (const TokenCase& token : tokens) found.copy_row(expected, token.sequence, token.position);
  EXPECT_TRUE(found.bytes() == expected.bytes()) << "bytes of somebody else were written";
  found.set_bytes(bytes);
}

// As for rms_norm; the rotated part is the reference's to the bit.
auto latent_bound(const OwnedCache& expected, const std::vector<TokenCase>& places, std::int64_t latent) {
  return [&expected, &places, latent](std::int64_t token, std::int64_t element) {
    if (element >= latent) return 0.0;
    const TokenCase& place = places[static_cast<std::size_t>(token)];
    const double value = expected.row(place.sequence, place.position)[static_cast<std::size_t>(element)];
    return kUlp * (static_cast<double>(latent) / 2 + 8) * std::fabs(value) + 0x1p-126;
  };
}

// A normalised element is at most sqrt(width), and |weight|, |bias| <= 1. Mean and variance are float sums: (width + 4) ulp of the largest
// distance to the mean each; after that a few roundings, of which the rotation adds up two elements.
double index_key_bound(std::int64_t width, DType dtype) {
  const auto n = static_cast<double>(width);
  const double absolute = 2 * kUlp * ((2 * n + 8) * std::sqrt(n) + 8);
  return absolute + (dtype == DType::bf16 ? 0x1p-8 * absolute : 0.0);
}

TEST(StoreLatent, KernelsMatchTheReference) {
  Random random(7);
  for (int i = 0; i < 40; ++i) {
    const std::int64_t tokens = some_tokens(random);
    const auto latent = random.one_of<std::int64_t>({8, 32, 40, 51, 160, 512});
    const auto pairs = random.one_of<std::int64_t>({1, 8, 32});
    const std::int64_t width = latent + 2 * pairs;
    const std::vector<TokenCase> places = distinct_places(tokens, random);
    const DType dtype = random.one_of(kCacheDTypes);
    const std::uint64_t seed = static_cast<std::uint64_t>(random.below(1000));
    Random random_a(seed), random_b(seed);
    const OwnedCache expected(dtype, width, latent, {90, 90}, random_a);
    const OwnedCache found(dtype, width, latent, {90, 90}, random_b);
    const OwnedPlaces expected_places(places, expected), found_places(places, found);
    const OwnedTensor kv({tokens, width}, random.floats(tokens * width)), weight({latent}, random.floats(latent));
    const Angles angles(tokens, pairs, random);
    StoreLatentArgs args{.kv = *kv,
                         .weight = *weight,
                         .epsilon = 1e-6f,
                         .layout = i % 3 == 0 ? RopeLayout::half_split : RopeLayout::interleaved,
                         .cosine = *angles.cosine,
                         .sine = *angles.sine,
                         .places = *expected_places,
                         .cache = *expected};
    SCOPED_TRACE(kv->shape.to_string() + " latent " + std::to_string(latent) + " " + std::string(name(dtype)));
    reference(args);
    args.places = *found_places;
    args.cache = *found;
    for_each_keyless_kernel<StoreLatentArgs>([&](const Kernel<StoreLatentArgs>& kernel) {
      for (const int threads : {1, 3}) {
        run_kernel(kernel, args, threads);
        expect_stored(found, expected, places, latent_bound(expected, places, latent));
      }
    });
  }
}

TEST(StoreIndexKey, KernelsMatchTheReference) {
  Random random(8);
  for (int i = 0; i < 40; ++i) {
    const std::int64_t tokens = some_tokens(random);
    const auto width = random.one_of<std::int64_t>({2, 8, 15, 32, 40, 64, 128, 144});
    const std::int64_t pairs = std::min<std::int64_t>(width / 2, random.one_of<std::int64_t>({1, 8, 32}));
    const std::vector<TokenCase> places = distinct_places(tokens, random);
    const DType dtype = random.one_of(kCacheDTypes);
    const std::uint64_t seed = static_cast<std::uint64_t>(random.below(1000));
    Random random_a(seed), random_b(seed);
    const OwnedCache expected(dtype, width, width, {90, 90}, random_a);
    const OwnedCache found(dtype, width, width, {90, 90}, random_b);
    const OwnedPlaces expected_places(places, expected), found_places(places, found);
    const OwnedTensor k({tokens, width}, random.floats(tokens * width));
    const OwnedTensor weight({width}, random.floats(width)), bias({width}, random.floats(width));
    // A mean that is large against the spread, now and then.
    const float offset = random.one_of<float>({0.0f, 0.0f, 100.0f});
    for (std::int64_t j = 0; j < k->shape.elements(); ++j) k->f32()[j] += offset;
    const Angles angles(tokens, pairs, random);
    StoreIndexKeyArgs args{.k = *k,
                           .weight = *weight,
                           .bias = *bias,
                           .epsilon = 1e-6f,
                           .layout = i % 3 == 0 ? RopeLayout::half_split : RopeLayout::interleaved,
                           .cosine = *angles.cosine,
                           .sine = *angles.sine,
                           .places = *expected_places,
                           .cache = *expected};
    SCOPED_TRACE(k->shape.to_string() + " pairs " + std::to_string(pairs) + " " + std::string(name(dtype)));
    reference(args);
    args.places = *found_places;
    args.cache = *found;
    for_each_keyless_kernel<StoreIndexKeyArgs>([&](const Kernel<StoreIndexKeyArgs>& kernel) {
      for (const int threads : {1, 3}) {
        run_kernel(kernel, args, threads);
        const double absolute = index_key_bound(width, dtype);
        expect_stored(found, expected, places, [&](std::int64_t, std::int64_t) { return absolute; });
      }
    });
  }
}

TEST(RotateAndStore, KernelsMatchTheReferencesOfTheParts) {
  Random random(28);
  for (int i = 0; i < 40; ++i) {
    const std::int64_t tokens = some_tokens(random);
    const auto latent = random.one_of<std::int64_t>({8, 40, 51, 512});
    const auto pairs = random.one_of<std::int64_t>({1, 8, 32});
    const auto heads = random.one_of<std::int64_t>({1, 3, 8}), nope = random.one_of<std::int64_t>({0, 7, 192});
    const std::int64_t index_heads = random.one_of<std::int64_t>({0, 1, 5, 32}),
                       index_dim = 2 * pairs + random.one_of<std::int64_t>({0, 7, 64});
    const std::vector<TokenCase> places = distinct_places(tokens, random);
    const DType dtype = random.one_of(kCacheDTypes);
    const std::uint64_t seed = static_cast<std::uint64_t>(random.below(1000));
    Random random_a(seed), random_b(seed);
    const OwnedCache expected(dtype, latent + 2 * pairs, latent, {90, 90}, random_a);
    const OwnedCache expected_keys(dtype, index_dim, index_dim, expected, random_a);
    const OwnedCache found(dtype, latent + 2 * pairs, latent, {90, 90}, random_b);
    const OwnedCache found_keys(dtype, index_dim, index_dim, found, random_b);
    const OwnedPlaces expected_places(places, expected), found_places(places, found);
    const Angles angles(tokens, pairs, random);
    const std::int64_t head_dim = nope + 2 * pairs;
    const std::vector<float> queries = random.floats(tokens * heads * head_dim);
    const std::vector<float> index_queries = random.floats(tokens * index_heads * index_dim);
    const OwnedTensor q({tokens, heads, head_dim}, queries), index_q({tokens, index_heads, index_dim}, index_queries);
    const OwnedTensor kv({tokens, latent + 2 * pairs}, random.floats(tokens * (latent + 2 * pairs)));
    const OwnedTensor latent_weight({latent}, random.floats(latent)), k({tokens, index_dim}, random.floats(tokens * index_dim));
    const OwnedTensor k_weight({index_dim}, random.floats(index_dim)), k_bias({index_dim}, random.floats(index_dim));
    RotateAndStoreArgs args{.cosine = *angles.cosine,
                            .sine = *angles.sine,
                            .places = *expected_places,
                            .q = *q,
                            .first = nope,
                            .layout = i % 3 == 0 ? RopeLayout::half_split : RopeLayout::interleaved,
                            .kv = *kv,
                            .latent_weight = *latent_weight,
                            .latent_epsilon = 1e-6f,
                            .latent = *expected};
    if (index_heads > 0) {
      args.index_q = *index_q;
      args.index_layout = i % 2 == 0 ? RopeLayout::half_split : RopeLayout::interleaved;
      args.k = *k;
      args.k_weight = *k_weight;
      args.k_bias = *k_bias;
      args.k_epsilon = 1e-5f;
      args.index_keys = *expected_keys;
    }
    SCOPED_TRACE(q->shape.to_string() + " latent " + std::to_string(latent) + " indexer " + index_q->shape.to_string() + " " +
                 std::string(name(dtype)));
    reference(args.queries());
    reference(args.store_latent());
    if (index_heads > 0) reference(args.index_queries());
    if (index_heads > 0) reference(args.store_index_key());
    const std::vector<float> rotated = values_of(*q), index_rotated = values_of(*index_q);
    args.places = *found_places;
    args.latent = *found;
    if (index_heads > 0) args.index_keys = *found_keys;
    for_each_keyless_kernel<RotateAndStoreArgs>([&](const Kernel<RotateAndStoreArgs>& kernel) {
      put(q, queries);
      put(index_q, index_queries);
      run_kernel(kernel, args, 1);
      EXPECT_EQ(values_of(*q), rotated);
      EXPECT_EQ(values_of(*index_q), index_rotated);
      expect_stored(found, expected, places, latent_bound(expected, places, latent));
      if (index_heads == 0) return;
      const double absolute = index_key_bound(index_dim, dtype);
      expect_stored(found_keys, expected_keys, places, [&](std::int64_t, std::int64_t) { return absolute; });
    });
  }
}

TEST(StoreRows, KernelsEqualTheReference) {
  Random random(18);
  for (int i = 0; i < 40; ++i) {
    const std::int64_t tokens = some_tokens(random);
    const auto width = random.one_of<std::int64_t>({8, 15, 64, 130, 256, 1024});
    const std::vector<TokenCase> places = distinct_places(tokens, random);
    const DType dtype = random.one_of(kCacheDTypes);
    const std::uint64_t seed = static_cast<std::uint64_t>(random.below(1000));
    Random random_a(seed), random_b(seed);
    const OwnedCache expected(dtype, width, width, {90, 90}, random_a);
    const OwnedCache found(dtype, width, width, {90, 90}, random_b);
    const OwnedPlaces expected_places(places, expected), found_places(places, found);
    const OwnedTensor x({tokens, width}, random.floats(tokens * width));
    SCOPED_TRACE(x->shape.to_string() + " " + std::string(name(dtype)));
    const std::vector<std::byte> before = found.bytes();
    reference(StoreRowsArgs{.x = *x, .places = *expected_places, .cache = *expected});
    for_each_keyless_kernel<StoreRowsArgs>([&](const Kernel<StoreRowsArgs>& kernel) {
      for (const int threads : {1, 3}) {
        found.set_bytes(before);
        run_kernel(kernel, StoreRowsArgs{.x = *x, .places = *found_places, .cache = *found}, threads);
        EXPECT_TRUE(found.bytes() == expected.bytes());
      }
    });
    if (dtype != DType::f32) continue;
    for (std::size_t t = 0; t < places.size(); ++t) {
      const float* row = x->f32() + static_cast<std::int64_t>(t) * width;
      EXPECT_EQ(expected.row(places[t].sequence, places[t].position), std::vector<float>(row, row + width));
    }
  }
}

}  // namespace
}  // namespace reckoner
