// The kernels of the row ops that this machine can run, against the references. Where a kernel does the reference's operations in the
// reference's order the bits must agree; elsewhere the tolerance is derived beside it.
#include <algorithm>

#include "cases_rows.h"

namespace reckoner {
namespace {

// ---- rms_norm ----

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
    const std::vector<float> expected_rms = values_of(*c.rms);
    for_each_keyless_kernel<RmsNormArgs>([&](const Kernel<RmsNormArgs>& kernel) {
      run_on_any_threads(kernel, c.args(), {*c.x, *c.y, *c.first_bad}, [&] { c.reset(); });
      expect_norm_close(c, expected);
      for (std::size_t token = 0; token < expected_rms.size(); ++token) {
        EXPECT_NEAR(c.rms->f32()[token], expected_rms[token], kUlp * (static_cast<double>(c.x->dim(1)) / 2 + 4) * expected_rms[token]);
      }
      EXPECT_EQ(values_of(*c.x), expected_x);
      EXPECT_EQ(c.bad(), std::vector<std::int32_t>(c.bad().size(), Guard::kClean));
      EXPECT_TRUE(c.x.untouched_around() && c.y.untouched_around() && c.first_bad.untouched_around());
    });
  }
}

// Widths of whole pieces, up to as many as fit registers and beyond.
TEST(RmsNorm, WholePieces) {
  Random random(25);
  for (const std::int64_t width : {4, 2044, 2048, 2052, 4096, 4100, 6144, 6148, 8192, 8196}) {
    for (const bool adds : {false, true}) {
      const NormCase c(3, width, adds, random);
      c.reset();
      reference(c.args());
      const std::vector<float> expected = values_of(*c.y), expected_x = values_of(*c.x);
      for_each_keyless_kernel<RmsNormArgs>([&](const Kernel<RmsNormArgs>& kernel) {
        c.reset();
        run_kernel(kernel, c.args(), 2);
        expect_norm_close(c, expected);
        EXPECT_EQ(values_of(*c.x), expected_x);
        EXPECT_TRUE(c.x.untouched_around() && c.y.untouched_around());
      });
    }
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

// ---- add_bias, silu_mul, combine, embed, gather_rows ----

TEST(AddBias, KernelsAddItToEveryRow) {
  Random random(19);
  for (int i = 0; i < 30; ++i) {
    const Shape shape{some_tokens(random), some_width(random)};
    const OwnedTensor x(DType::f32, shape), bias({shape[1]}, random.floats(shape[1]));
    const std::vector<float> before = random.floats(shape.elements());
    std::vector<float> expected = before;
    for (std::size_t j = 0; j < expected.size(); ++j) expected[j] = before[j] + bias->f32()[j % static_cast<std::size_t>(shape[1])];
    const AddBiasArgs args{.x = *x, .bias = *bias};
    put(x, before);
    reference(args);
    EXPECT_EQ(values_of(*x), expected);
    for_each_keyless_kernel<AddBiasArgs>([&](const Kernel<AddBiasArgs>& kernel) {
      run_on_any_threads(kernel, args, {*x}, [&] { put(x, before); });
      EXPECT_EQ(values_of(*x), expected);
      EXPECT_TRUE(x.untouched_around());
    });
  }
}

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

// The exponential functions of two libraries may differ by a unit in the last place either way; what follows rounds alike. A weight is p
// over a sum of such p: two units of each.
void expect_near_weights(const std::vector<float>& weights, const std::vector<float>& expected) {
  ASSERT_EQ(weights.size(), expected.size());
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(weights[i], expected[i], 4 * 0x1p-23 * std::fabs(expected[i])) << i;
}

void expect_route_equals_reference(const RouteCase& c) {
  SCOPED_TRACE(c.logits->shape.to_string() + " top_k " + std::to_string(c.weights->dim(1)) + " groups " + std::to_string(c.groups));
  c.reset();
  reference(c.args());
  const std::vector<float> weights = values_of(*c.weights);
  std::vector<std::vector<std::byte>> expected;
  for (const Tensor& output : c.outputs()) expected.push_back(bytes_of(output));
  for_each_keyless_kernel<RouteArgs>([&](const Kernel<RouteArgs>& kernel) {
    run_on_any_threads(kernel, c.args(), c.outputs(), [&] { c.reset(); });
    for (std::size_t i = 1; i < expected.size(); ++i) EXPECT_EQ(bytes_of(c.outputs()[i]), expected[i]) << "output " << i;
    expect_near_weights(values_of(*c.weights), weights);
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

// Up to as many experts, choices and tokens as a kernel may have in registers or in one block, and more.
TEST(Route, ManyExperts) {
  Random random(24);
  for (const std::int64_t experts : {255, 256, 257, 384, 512, 513}) {
    for (const std::int64_t tokens : {1, 15, 16, 17, 64}) {
      const auto top_k = random.one_of<std::int64_t>({1, 8, 16, 32, 33});
      const RouteCase c(tokens, experts, top_k, 1, 1, random);
      if (tokens % 2 == 1) {
        for (std::int64_t j = 0; j < c.logits->shape.elements(); ++j) c.logits->f32()[j] = std::round(c.logits->f32()[j]);
        std::fill_n(c.bias->f32(), c.bias->shape.elements(), 0.0f);
      }
      expect_route_equals_reference(c);
    }
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
