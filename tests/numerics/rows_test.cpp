// The kernels of the row ops that this machine can run, against the references. Where a kernel does the reference's operations in the
// reference's order the bits must agree; elsewhere the tolerance is derived beside it.
#include <algorithm>
#include <limits>

#include "cases_cache.h"
#include "kernels/cpu/rows/row_functions.h"

namespace reckoner {
namespace {

constexpr double kUlp = 0x1p-24;
const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> values_of(const Tensor& tensor) { return {tensor.f32(), tensor.f32() + tensor.shape.elements()}; }
void put(const OwnedTensor& tensor, const std::vector<float>& values) { std::copy(values.begin(), values.end(), tensor->f32()); }
void clear(const OwnedTensor& tensor) { std::memset(tensor->data, 0x7f, static_cast<std::size_t>(tensor->bytes())); }

std::int64_t some_tokens(Random& random) { return random.one_of<std::int64_t>({1, 2, 3, 7, 33}); }
std::int64_t some_width(Random& random) { return random.one_of<std::int64_t>({1, 2, 7, 8, 15, 16, 17, 40, 63, 64, 128, 576, 1000, 6144}); }

// ---- rms_norm ----

struct NormCase {
  OwnedTensor x, add, weight, y, first_bad;
  std::vector<float> x_before;
  bool adds;

  NormCase(std::int64_t tokens, std::int64_t width, bool adds_, Random& random)
      : x({tokens, width}, random.floats(tokens * width)),
        add({tokens, width}, random.floats(tokens * width)),
        weight({width}, random.floats(width)),
        y(DType::f32, {tokens, width}),
        first_bad(DType::i32, {tokens}),
        x_before(values_of(*x)),
        adds(adds_) {}
  RmsNormArgs args() const {
    return {.x = *x,
            .add = adds ? *add : Tensor{},
            .weight = *weight,
            .epsilon = 1e-5f,
            .y = *y,
            .guard = {.first_bad = *first_bad, .place = 5}};
  }
  void reset() const {
    put(x, x_before);
    clear(y);
    std::fill_n(first_bad->i32(), first_bad->shape.elements(), Guard::kClean);
  }
  std::vector<std::int32_t> bad() const { return {first_bad->i32(), first_bad->i32() + first_bad->shape.elements()}; }
};

// The sum of squares has only positive terms: off by width ulp, its root by half of that; a few ulp for root, division and products.
void expect_norm_close(const NormCase& c, const std::vector<float>& expected) {
  const double relative = kUlp * (static_cast<double>(c.x->dim(1)) / 2 + 8);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(c.y->f32()[i], expected[i], relative * std::fabs(expected[i]) + 0x1p-126) << "element " << i;
  }
}

TEST(RmsNorm, KernelsMatchTheReferenceOnAnyNumberOfThreads) {
  Random random(1);
  for (int i = 0; i < 40; ++i) {
    const NormCase c(some_tokens(random), some_width(random), i % 2 == 0, random);
    SCOPED_TRACE(c.x->shape.to_string());
    c.reset();
    reference(c.args());
    const std::vector<float> expected = values_of(*c.y);
    const std::vector<float> expected_x = values_of(*c.x);
    for_each_keyless_kernel<RmsNormArgs>([&](const Kernel<RmsNormArgs>& kernel) {
      run_on_any_threads(kernel, c.args(), {*c.x, *c.y, *c.first_bad}, [&] { c.reset(); });
      expect_norm_close(c, expected);
      EXPECT_EQ(values_of(*c.x), expected_x);
      EXPECT_EQ(c.bad(), std::vector<std::int32_t>(c.bad().size(), Guard::kClean));
      EXPECT_TRUE(c.x.untouched_around() && c.y.untouched_around() && c.first_bad.untouched_around());
    });
  }
}

TEST(RmsNorm, InPlaceAndUnguarded) {
  Random random(2);
  const NormCase c(3, 100, false, random);
  c.reset();
  reference(c.args());
  const std::vector<float> expected = values_of(*c.y);
  for_each_keyless_kernel<RmsNormArgs>([&](const Kernel<RmsNormArgs>& kernel) {
    c.reset();
    put(c.y, c.x_before);
    RmsNormArgs args = c.args();
    args.x = args.y;
    args.guard = {};
    run_kernel(kernel, args, 2);
    expect_norm_close(c, expected);
  });
}

// In any lane, also in a row's incomplete last vector, a bad element is seen, in its row only.
TEST(RmsNorm, TheGuardFindsEveryBadElement) {
  Random random(3);
  for (const std::int64_t width : {1, 7, 16, 67, 150}) {
    NormCase c(4, width, true, random);
    for (const float bad : {kNan, kInfinity, -kInfinity, 1e30f, -3e38f}) {
      for (std::int64_t i = 0; i < width; ++i) {
        float& element = c.x_before[static_cast<std::size_t>(2 * width + i)];
        const float good = element;
        element = bad;
        for_each_keyless_kernel<RmsNormArgs>([&](const Kernel<RmsNormArgs>& kernel) {
          c.reset();
          run_kernel(kernel, c.args(), 1);
          ASSERT_EQ(c.bad(), (std::vector<std::int32_t>{-1, -1, 5, -1})) << bad << " at " << i << " of " << width;
        });
        element = good;
      }
    }
  }
}

TEST(RmsNorm, TheGuardKeepsTheFirstPlaceAndSeesTheSum) {
  Random random(4);
  NormCase c(3, 64, true, random);
  c.x_before[64 + 3] = kInfinity;
  c.add->f32()[64 + 3] = -kInfinity;
  c.x_before[3] = 3e38f;  // overflows in the sum with the residual
  c.add->f32()[3] = 3e38f;
  for_each_keyless_kernel<RmsNormArgs>([&](const Kernel<RmsNormArgs>& kernel) {
    c.reset();
    c.first_bad->i32()[0] = 2;
    run_kernel(kernel, c.args(), 2);
    EXPECT_EQ(c.bad(), (std::vector<std::int32_t>{2, 5, -1}));
  });
}

// ---- rope ----

struct Angles {
  OwnedTensor cosine, sine;  // [tokens, pairs]
  Angles(std::int64_t tokens, std::int64_t pairs, Random& random) : cosine(DType::f32, {tokens, pairs}), sine(DType::f32, {tokens, pairs}) {
    for (std::int64_t i = 0; i < tokens * pairs; ++i) {
      const double angle = 3 * random.uniform();
      cosine->f32()[i] = static_cast<float>(std::cos(angle));
      sine->f32()[i] = static_cast<float>(std::sin(angle));
    }
  }
};

TEST(RopeHeads, KernelsEqualTheReference) {
  Random random(5);
  for (int i = 0; i < 40; ++i) {
    const std::int64_t tokens = some_tokens(random);
    const auto pairs = random.one_of<std::int64_t>({1, 3, 4, 8, 9, 16, 32, 33});
    const std::int64_t first = random.below(5);
    const std::int64_t head_dim = first + 2 * pairs + random.below(3);
    const OwnedTensor x(DType::f32, {tokens, random.one_of<std::int64_t>({1, 3, 64}), head_dim});
    const std::vector<float> before = random.floats(x->shape.elements());
    const Angles angles(tokens, pairs, random);
    const RopeHeadsArgs args{.x = *x,
                             .first = first,
                             .layout = i % 2 == 0 ? RopeLayout::interleaved : RopeLayout::half_split,
                             .cosine = *angles.cosine,
                             .sine = *angles.sine};
    SCOPED_TRACE(x->shape.to_string() + " pairs " + std::to_string(pairs));
    put(x, before);
    reference(args);
    const std::vector<float> expected = values_of(*x);
    for_each_keyless_kernel<RopeHeadsArgs>([&](const Kernel<RopeHeadsArgs>& kernel) {
      run_on_any_threads(kernel, args, {*x}, [&] { put(x, before); });
      EXPECT_EQ(values_of(*x), expected);
      EXPECT_TRUE(x.untouched_around());
    });
  }
}

TEST(RopeAngles, KernelsEqualTheReference) {
  Random random(6);
  const OwnedTensor positions({50}, [&] {
    std::vector<std::int32_t> values;
    for (int i = 0; i < 50; ++i) values.push_back(static_cast<std::int32_t>(random.below(1 << 20)));
    return values;
  }());
  const OwnedTensor frequencies({32}, random.floats(32));
  const OwnedTensor cosine(DType::f32, {50, 32}), sine(DType::f32, {50, 32});
  const RopeAnglesArgs args{.positions = *positions, .frequencies = *frequencies, .cosine = *cosine, .sine = *sine};
  reference(args);
  const std::vector<float> expected_cosine = values_of(*cosine), expected_sine = values_of(*sine);
  for_each_keyless_kernel<RopeAnglesArgs>([&](const Kernel<RopeAnglesArgs>& kernel) {
    run_on_any_threads(kernel, args, {*cosine, *sine}, [&] {
      clear(cosine);
      clear(sine);
    });
    EXPECT_EQ(values_of(*cosine), expected_cosine);
    EXPECT_EQ(values_of(*sine), expected_sine);
  });
}

// ---- what goes into the cache ----

// Tokens of a few sequences, each with a place of its own.
std::vector<TokenCase> distinct_places(std::int64_t tokens, Random& random) {
  std::vector<TokenCase> places;
  for (std::int64_t i = 0; i < tokens; ++i) places.push_back({i % 2, i / 2 * 3 + random.below(3)});
  return places;
}

// What storing may turn a small difference of an element into, at most: the distance of neighbours in the cache.
double step_at(const CacheView& cache, const std::vector<float>& row, std::int64_t element) {
  const double magnitude = std::fabs(row[static_cast<std::size_t>(element)]);
  if (cache.dtype == DType::f32) return 0;
  if (element >= cache.quantised()) return 0x1p-7 * magnitude;
  double largest = 0;
  const std::int64_t first = element / kCacheBlock * kCacheBlock;
  for (std::int64_t i = first; i < std::min(first + kCacheBlock, cache.quantised()); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(row[static_cast<std::size_t>(i)])));
  }
  // 3 bits of mantissa; the smallest codes are 2^-9 apart. The scale differs a little as well, by less than the largest element does.
  return std::max(0x1p-3 * magnitude, 0x1p-9 * largest / 448);
}

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
        // As for rms_norm; the rotated part is the reference's to the bit.
        expect_stored(found, expected, places, [&](std::int64_t token, std::int64_t element) {
          if (element >= latent) return 0.0;
          const double value = expected.row(places[static_cast<std::size_t>(token)].sequence,
                                            places[static_cast<std::size_t>(token)].position)[static_cast<std::size_t>(element)];
          return kUlp * (static_cast<double>(latent) / 2 + 8) * std::fabs(value) + 0x1p-126;
        });
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
        // A normalised element is at most sqrt(width), and |weight|, |bias| <= 1. Mean and variance are float sums: (width + 4) ulp of
        // the largest distance to the mean each; after that a few roundings, of which the rotation adds up two elements.
        const auto n = static_cast<double>(width);
        const double absolute = 2 * kUlp * ((2 * n + 8) * std::sqrt(n) + 8);
        expect_stored(found, expected, places,
                      [&](std::int64_t, std::int64_t) { return absolute + (dtype == DType::bf16 ? 0x1p-8 * absolute : 0.0); });
      }
    });
  }
}

TEST(RowFunctions, RoundToBf16EqualsTheScalarConversion) {
  Random random(9);
  std::vector<float> values = {0.0f, -0.0f, kInfinity, -kInfinity, kNan, -kNan, 3.4028235e38f, 1e-45f, std::bit_cast<float>(0x7f800001u)};
  for (int i = 0; i < 100000; ++i) {
    // Random bits, every third one at or next to a tie.
    auto bits = static_cast<std::uint32_t>(random.below(std::int64_t{1} << 32));
    if (i % 3 == 0) bits = (bits & 0xffff0000u) | static_cast<std::uint32_t>(0x7fff + random.below(3));
    values.push_back(std::bit_cast<float>(bits));
  }
  std::vector<std::uint16_t> expected;
  for (const float value : values) expected.push_back(f32_to_bf16(value));
  const DeviceInfo device = detect_cpu();
  const auto expect_equal = [&](const RowFunctions& functions) {
    std::vector<std::uint16_t> found(values.size());
    functions.round_to_bf16(values.data(), std::ssize(values), found.data());
    EXPECT_EQ(found, expected);
  };
  if (device.avx2) expect_equal(avx2::row_functions());
  if (device.avx512) expect_equal(avx512::row_functions());
}

// Codes and scale equal what write_row() writes, for blocks of any length and elements of any size.
TEST(RowFunctions, QuantiseEqualsTheScalarConversion) {
  Random random(17);
  const DeviceInfo device = detect_cpu();
  for (int i = 0; i < 3000; ++i) {
    const std::int64_t count = 1 + random.below(kCacheBlock);
    std::vector<float> block = random.floats(count);
    // Elements of one size; of 24 binades, so that small codes occur; of all floats; and such that the scale is 1 and many are ties.
    const std::int64_t kind = random.below(4);
    for (float& value : block) {
      if (kind == 1) value = std::ldexp(value, -static_cast<int>(random.below(24)));
      if (kind == 2) value = std::bit_cast<float>(static_cast<std::uint32_t>(random.below(std::int64_t{1} << 32)));
      if (kind == 3)
        value = static_cast<float>(random.below(1 << 10)) * std::ldexp(value < 0 ? -1.0f : 1.0f, -static_cast<int>(random.below(11)));
      if (kind == 3) value = value > 448.0f ? 448.0f : value;
    }
    if (kind == 3) block[0] = 448.0f;
    if (kind == 2 && random.below(8) == 0)
      std::fill(block.begin(), block.end(), std::bit_cast<float>(static_cast<std::uint32_t>(random.below(2000))));
    const CacheView view{.row_elements = count, .dtype = DType::f8_e4m3, .quantised_elements = count};
    std::vector<std::byte> expected(static_cast<std::size_t>(view.row_bytes())), found = expected;
    write_row(view, expected.data(), block.data());
    const auto expect_equal = [&](const RowFunctions& functions) {
      std::fill(found.begin(), found.end(), std::byte{0});
      const float scale = functions.quantise(block.data(), count, reinterpret_cast<std::uint8_t*>(found.data()));
      std::memcpy(found.data() + view.scales_offset_bytes(), &scale, sizeof(scale));
      ASSERT_EQ(found, expected) << "case " << i << " kind " << kind;
    };
    if (device.avx2) expect_equal(avx2::row_functions());
    if (device.avx512) expect_equal(avx512::row_functions());
  }
}

// ---- silu_mul, combine, embed, gather_rows ----

TEST(SiluMul, KernelsMatchTheReference) {
  Random random(10);
  for (int i = 0; i < 30; ++i) {
    const Shape shape{some_tokens(random), some_width(random)};
    const OwnedTensor gate(shape, random.floats(shape.elements())), up(shape, random.floats(shape.elements())), y(DType::f32, shape);
    const float range = random.one_of<float>({1.0f, 20.0f, 200.0f});
    for (std::int64_t j = 0; j < shape.elements(); ++j) gate->f32()[j] *= range;
    const SiluMulArgs args{.gate = *gate, .up = *up, .y = *y};
    reference(args);
    const std::vector<float> expected = values_of(*y);
    for_each_keyless_kernel<SiluMulArgs>([&](const Kernel<SiluMulArgs>& kernel) {
      run_on_any_threads(kernel, args, {*y}, [&] { clear(y); });
      // exp is off by 4 ulp here and 2 in the reference, then an addition, a division and a product each; where exp(-gate) leaves the
      // range of float, both are below |gate| * 2^-125.
      for (std::size_t j = 0; j < expected.size(); ++j) {
        const double slack = std::fabs(static_cast<double>(gate->f32()[j])) * 0x1p-125;
        ASSERT_NEAR(y->f32()[j], expected[j], 16 * kUlp * std::fabs(expected[j]) + slack) << "gate " << gate->f32()[j];
      }
      EXPECT_TRUE(y.untouched_around());
      put(y, values_of(*gate));
      SiluMulArgs in_place = args;
      in_place.gate = *y;
      const std::vector<float> separate = [&] {
        run_kernel(kernel, args, 1);
        return values_of(*y);
      }();
      put(y, values_of(*gate));
      run_kernel(kernel, in_place, 2);
      EXPECT_EQ(values_of(*y), separate);
    });
  }
}

TEST(SiluMul, BadElementsStayBadAndAlone) {
  const OwnedTensor gate({1, 20}, std::vector<float>(20, 1.0f)), up({1, 20}, std::vector<float>(20, 1.0f)), y(DType::f32, {1, 20});
  gate->f32()[3] = kNan;
  gate->f32()[17] = kInfinity;
  up->f32()[9] = kNan;
  for_each_keyless_kernel<SiluMulArgs>([&](const Kernel<SiluMulArgs>& kernel) {
    run_kernel(kernel, SiluMulArgs{.gate = *gate, .up = *up, .y = *y}, 1);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(std::isfinite(y->f32()[i]), i != 3 && i != 17 && i != 9) << i;
  });
}

TEST(Combine, KernelsEqualTheReference) {
  Random random(11);
  for (int i = 0; i < 30; ++i) {
    const std::int64_t tokens = some_tokens(random);
    const std::int64_t width = some_width(random);
    const auto top_k = random.one_of<std::int64_t>({1, 2, 8});
    std::vector<std::int32_t> slots(static_cast<std::size_t>(tokens * top_k));
    std::iota(slots.begin(), slots.end(), 0);
    for (std::size_t j = slots.size(); j > 1; --j)
      std::swap(slots[j - 1], slots[static_cast<std::size_t>(random.below(std::ssize(slots)))]);
    const OwnedTensor rows({tokens * top_k, width}, random.floats(tokens * top_k * width));
    const OwnedTensor weights({tokens, top_k}, random.floats(tokens * top_k)), slot_of({tokens, top_k}, slots);
    const OwnedTensor shared({tokens, width}, random.floats(tokens * width)), y(DType::f32, {tokens, width});
    CombineArgs args{.rows = *rows, .weights = *weights, .slot_of = *slot_of, .shared = i % 3 == 0 ? Tensor{} : *shared, .y = *y};
    SCOPED_TRACE(y->shape.to_string());
    reference(args);
    const std::vector<float> expected = values_of(*y);
    for_each_keyless_kernel<CombineArgs>([&](const Kernel<CombineArgs>& kernel) {
      run_on_any_threads(kernel, args, {*y}, [&] { clear(y); });
      EXPECT_EQ(values_of(*y), expected);
      EXPECT_TRUE(y.untouched_around());
      if (args.shared.empty()) return;
      put(y, values_of(*shared));
      CombineArgs in_place = args;
      in_place.shared = *y;
      run_kernel(kernel, in_place, 2);
      EXPECT_EQ(values_of(*y), expected);
    });
  }
}

TEST(Embed, KernelsEqualTheReferenceInEveryFormat) {
  Random random(12);
  for (const FormatInfo& format : formats()) {
    const OwnedWeight table(format.format, 30, 64, random);
    const OwnedTensor tokens({5}, std::vector<std::int32_t>{29, 0, 7, 7, 13}), y(DType::f32, {5, 64});
    const EmbedArgs args{.tokens = *tokens, .table = *table, .y = *y};
    reference(args);
    const std::vector<float> expected = values_of(*y);
    for_each_keyless_kernel<EmbedArgs>([&](const Kernel<EmbedArgs>& kernel) {
      run_on_any_threads(kernel, args, {*y}, [&] { clear(y); });
      EXPECT_EQ(values_of(*y), expected);
    });
  }
}

TEST(GatherRows, KernelsEqualTheReference) {
  Random random(13);
  const OwnedTensor x({9, 33}, random.floats(9 * 33)), rows({6}, std::vector<std::int32_t>{8, 0, 3, 3, 1, 7}), y(DType::f32, {6, 33});
  const GatherRowsArgs args{.x = *x, .rows = *rows, .y = *y};
  reference(args);
  const std::vector<float> expected = values_of(*y);
  for_each_keyless_kernel<GatherRowsArgs>([&](const Kernel<GatherRowsArgs>& kernel) {
    run_on_any_threads(kernel, args, {*y}, [&] { clear(y); });
    EXPECT_EQ(values_of(*y), expected);
  });
}

// ---- route ----

struct RouteCase {
  OwnedTensor logits, bias, weights, slot_of, begin, tokens;
  std::int64_t groups, top_groups;
  RouteArgs::Weights normalise;

  RouteCase(std::int64_t rows, std::int64_t experts, std::int64_t top_k, std::int64_t groups_, std::int64_t top_groups_, Random& random)
      : logits({rows, experts}, random.floats(rows * experts)),
        bias({experts}, random.floats(experts)),
        weights(DType::f32, {rows, top_k}),
        slot_of(DType::i32, {rows, top_k}),
        begin(DType::i32, {experts + 1}),
        tokens(DType::i32, {rows * top_k}),
        groups(groups_),
        top_groups(top_groups_),
        normalise(random.below(2) == 0 ? RouteArgs::Weights::normalised : RouteArgs::Weights::as_they_are) {}
  RouteArgs args() const {
    return {.logits = *logits,
            .bias = *bias,
            .groups = groups,
            .top_groups = top_groups,
            .normalise = normalise,
            .scale = 2.5f,
            .weights = *weights,
            .slot_of = *slot_of,
            .slots = {.begin = *begin, .tokens = *tokens}};
  }
  std::vector<Tensor> outputs() const { return {*weights, *slot_of, *begin, *tokens}; }
  void reset() const {
    for (const OwnedTensor* tensor : {&weights, &slot_of, &begin, &tokens}) clear(*tensor);
  }
};

void expect_route_equals_reference(const RouteCase& c) {
  SCOPED_TRACE(c.logits->shape.to_string() + " top_k " + std::to_string(c.weights->dim(1)) + " groups " + std::to_string(c.groups));
  c.reset();
  reference(c.args());
  std::vector<std::vector<std::byte>> expected;
  for (const Tensor& output : c.outputs()) expected.push_back(bytes_of(output));
  for_each_keyless_kernel<RouteArgs>([&](const Kernel<RouteArgs>& kernel) {
    run_on_any_threads(kernel, c.args(), c.outputs(), [&] { c.reset(); });
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(bytes_of(c.outputs()[i]), expected[i]) << "output " << i;
    EXPECT_TRUE(c.weights.untouched_around() && c.slot_of.untouched_around() && c.begin.untouched_around() && c.tokens.untouched_around());
  });
}

TEST(Route, KernelsEqualTheReference) {
  Random random(14);
  for (int i = 0; i < 60; ++i) {
    const auto size = random.one_of<std::int64_t>({1, 2, 3, 8, 32});  // of a group
    const auto groups = random.one_of<std::int64_t>({1, 1, 4, 8});
    const std::int64_t top_groups = 1 + random.below(groups);
    const std::int64_t top_k = 1 + random.below(std::min<std::int64_t>(8, size * top_groups));
    const RouteCase c(some_tokens(random), size * groups, top_k, groups, top_groups, random);
    // Coarse logits, so that many experts tie.
    if (i % 2 == 0) {
      for (std::int64_t j = 0; j < c.logits->shape.elements(); ++j) c.logits->f32()[j] = std::round(c.logits->f32()[j]);
      std::fill_n(c.bias->f32(), c.bias->shape.elements(), 0.0f);
    }
    expect_route_equals_reference(c);
  }
}

TEST(Route, BadRowsChooseExpertsThatExist) {
  Random random(15);
  for (const std::int64_t groups : {1, 4}) {
    const RouteCase c(5, 16, 3, groups, groups, random);
    std::fill_n(c.logits->f32() + 16, 16, kNan);
    c.logits->f32()[2 * 16 + 5] = kNan;
    c.logits->f32()[3 * 16 + 5] = kInfinity;
    c.logits->f32()[4 * 16 + 5] = -kInfinity;
    c.reset();
    for_each_keyless_kernel<RouteArgs>([&](const Kernel<RouteArgs>& kernel) {
      run_kernel(kernel, c.args(), 2);
      for (int i = 0; i < 15; ++i) EXPECT_TRUE(c.slot_of->i32()[i] >= 0 && c.slot_of->i32()[i] < 15);
      EXPECT_EQ(c.begin->i32()[16], 15);
    });
    std::fill_n(c.logits->f32() + 16, 16, 0.0f);  // NaN weights would differ in bits that mean nothing
    expect_route_equals_reference(c);
  }
}

}  // namespace
}  // namespace reckoner
