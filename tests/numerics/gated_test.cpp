// Every kernel of gated_linear, gated_experts and experts_combine that this machine can run: against the reference, within what its parts
// may be off by; and that a row that is not finite stays where it is.
#include <algorithm>

#include "cases.h"
#include "diagnose/admission/gated_cases.h"

namespace reckoner {
namespace {

void expect_within(const Tensor& found, const Floats& expected, const std::vector<double>& allowed) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(static_cast<double>(found.f32()[i]) - expected[i]);
    // Written so that a NaN fails.
    if (!(error <= allowed[i])) {
      ADD_FAILURE() << "element " << i << " of " << found.shape.to_string() << ": found " << found.f32()[i] << ", expected " << expected[i]
                    << ", allowed error " << allowed[i];
      return;
    }
  }
}

std::int64_t fitting(QuantFormat format, std::int64_t cols) {
  const std::int64_t multiple = info(format).cols_multiple;
  return (cols + multiple - 1) / multiple * multiple;
}

// Columns of whole chunks and others; tokens as kernels for few cut them, and more.
struct Sizes {
  std::int64_t tokens, rows, cols;
};
std::vector<Sizes> some_sizes(QuantFormat format, Random& random, const std::vector<std::int64_t>& cols) {
  std::vector<Sizes> sizes;
  for (const std::int64_t count : {1, 2, 3, 4, 5, 8, 9, 40}) {
    for (const std::int64_t width : cols)
      sizes.push_back({count, random.one_of<std::int64_t>({1, 2, 7, 8, 9, 16, 17, 33, 66}), fitting(format, width)});
  }
  return sizes;
}

template <class Args, class Bounds>
void expect_matches_reference(const Kernel<Args>& kernel, const Args& args, const Bounds& bounds) {
  SCOPED_TRACE(args.x.shape.to_string() + " -> " + args.y.shape.to_string());
  reference(args);
  const Floats expected = values_of(args.y);
  run_kernel(kernel, args, 2);
  expect_within(args.y, expected, bounds(args));
}

TEST(GatedLinear, MatchesReference) {
  for_each_kernel<GatedLinearArgs>([](const Kernel<GatedLinearArgs>& kernel, const Key& key) {
    Random random(31);
    for (const Sizes& size : some_sizes(key.format, random, {96, 128, 640, 2176, 6144, 7168})) {
      const GatedLinearCase c(key.format, size.tokens, std::min<std::int64_t>(size.rows, size.cols > 2176 ? 9 : 66), size.cols, random,
                              size.rows % 2 == 0 ? 0 : 100);
      expect_matches_reference(kernel, c.args(key.precision), [](const GatedLinearArgs& args) { return gated_bounds(args); });
      EXPECT_TRUE(c.y.untouched_around());
    }
  });
}

TEST(GatedLinear, BadTokenStaysInItsRow) {
  for_each_kernel<GatedLinearArgs>([](const Kernel<GatedLinearArgs>& kernel, const Key& key) {
    Random random(32);
    for (const std::int64_t tokens : {2, 5, 8, 11}) {
      for (const float bad : {kNan, kInfinity}) {
        const GatedLinearCase c(key.format, tokens, 9, 256, random);
        run_kernel(kernel, c.args(key.precision), 1);
        const Floats clean = values_of(*c.y);
        c.x->f32()[1 * 256 + 200] = bad;
        run_kernel(kernel, c.args(key.precision), 1);
        for (std::int64_t i = 0; i < tokens * 9; ++i) {
          const float y = c.y->f32()[i];
          if (i / 9 == 1) continue;  // silu of minus infinity is 0 or NaN
          EXPECT_EQ(std::memcmp(&y, &clean[static_cast<std::size_t>(i)], 4), 0) << "token " << i / 9;
        }
        EXPECT_TRUE(std::any_of(c.y->f32() + 9, c.y->f32() + 18, [](float y) { return !std::isfinite(y); }));
      }
    }
  });
}

// Spread, all to the same few, uneven.
ExpertsCase::Choose some_choice(int way, std::int64_t experts, std::int64_t step) {
  if (way % 3 == 0) return [=](std::int64_t token, std::int64_t rank) { return (token * step + rank) % experts; };
  if (way % 3 == 1) return [=](std::int64_t, std::int64_t rank) { return experts - 1 - rank; };
  return [=](std::int64_t token, std::int64_t rank) { return token % 5 == 0 ? (token + rank) % experts : rank; };
}

TEST(GatedExperts, MatchesReference) {
  for_each_kernel<GatedExpertsArgs>([](const Kernel<GatedExpertsArgs>& kernel, const Key& key) {
    Random random(33);
    int way = 0;
    for (const Sizes& size : some_sizes(key.format, random, {96, 128, 640, 2176})) {
      const std::int64_t experts = random.one_of<std::int64_t>({8, 9, 40}), top_k = 1 + random.below(8);
      const auto choose = some_choice(++way, experts, 1 + random.below(experts - 1));
      const GatedExpertsCase c(key.format, experts, size.tokens, top_k, std::min<std::int64_t>(size.rows, 33), size.cols, choose, random);
      expect_matches_reference(kernel, c.args(key.precision), [](const GatedExpertsArgs& args) { return gated_bounds(args); });
      EXPECT_TRUE(c.gate.y.untouched_around());
    }
  });
}

// More experts than a block has threads, and more tiles than the device works on at a time.
TEST(GatedExperts, MatchesReferenceOnManyExperts) {
  for_each_kernel<GatedExpertsArgs>([](const Kernel<GatedExpertsArgs>& kernel, const Key& key) {
    if (key.format != QuantFormat::nvfp4 && key.format != QuantFormat::bf16) return;
    Random random(34);
    for (const std::int64_t tokens : {1, 128}) {
      const GatedExpertsCase c(key.format, 300, tokens, 8, 66, 256, some_choice(0, 300, 37), random);
      expect_matches_reference(kernel, c.args(key.precision), [](const GatedExpertsArgs& args) { return gated_bounds(args); });
    }
  });
}

TEST(ExpertsCombine, MatchesReference) {
  for_each_kernel<ExpertsCombineArgs>([](const Kernel<ExpertsCombineArgs>& kernel, const Key& key) {
    Random random(35);
    int way = 0;
    for (const Sizes& size : some_sizes(key.format, random, {96, 128, 256, 640})) {
      const std::int64_t experts = random.one_of<std::int64_t>({8, 9, 40, 300}), top_k = 1 + random.below(8);
      const auto choose = some_choice(++way, experts, 1 + random.below(experts - 1));
      const QuantFormat shared = random.one_of<QuantFormat>({QuantFormat::bf16, key.format, QuantFormat::mxfp8});
      const ExpertsCombineCase c(key.format, experts, size.tokens, top_k, size.rows, size.cols, shared,
                                 fitting(shared, random.one_of<std::int64_t>({96, 128, 256, 1152})), choose, random);
      expect_matches_reference(kernel, c.args(key.precision), [](const ExpertsCombineArgs& args) { return combine_bounds(args); });
      EXPECT_TRUE(c.y.untouched_around());
    }
  });
}

TEST(ExpertsCombine, MatchesReferenceOnManyTokens) {
  for_each_kernel<ExpertsCombineArgs>([](const Kernel<ExpertsCombineArgs>& kernel, const Key& key) {
    if (key.format != QuantFormat::nvfp4 && key.format != QuantFormat::bf16) return;
    Random random(36);
    const ExpertsCombineCase c(key.format, 40, 128, 8, 35, 256, QuantFormat::bf16, 256, some_choice(0, 40, 7), random);
    expect_matches_reference(kernel, c.args(key.precision), [](const ExpertsCombineArgs& args) { return combine_bounds(args); });
    EXPECT_TRUE(c.y.untouched_around());
  });
}

// What a token's row is made of is its own slots' rows: another slot that is not finite reaches nobody else.
TEST(ExpertsCombine, BadSlotStaysWithItsToken) {
  for_each_kernel<ExpertsCombineArgs>([](const Kernel<ExpertsCombineArgs>& kernel, const Key& key) {
    Random random(36);
    for (const std::int64_t tokens : {1, 4, 8, 20}) {
      const ExpertsCombineCase c(key.format, 9, tokens, 3, 17, 256, QuantFormat::bf16, 256, some_choice(0, 9, 2), random);
      run_kernel(kernel, c.args(key.precision), 1);
      const Floats clean = values_of(*c.y);
      const std::int64_t slot = tokens * 3 / 2;
      c.experts.x->f32()[slot * 256 + 77] = kNan;
      run_kernel(kernel, c.args(key.precision), 1);
      for (std::int64_t i = 0; i < tokens * 17; ++i) {
        const bool is_bad = i / 17 == c.experts.tokens_of_slots[static_cast<std::size_t>(slot)];
        const float y = c.y->f32()[i];
        EXPECT_TRUE(is_bad ? std::isnan(y) : std::memcmp(&y, &clean[static_cast<std::size_t>(i)], 4) == 0) << i;
      }
    }
  });
}

// Weights that are NaN are not hidden: a code where there are such, else a scale.
TEST(Gated, NanWeightIsNotHidden) {
  for_each_kernel<GatedExpertsArgs>([](const Kernel<GatedExpertsArgs>& kernel, const Key& key) {
    if (key.format != QuantFormat::nvfp4 && key.format != QuantFormat::fp8_channel && key.format != QuantFormat::fp8_block) return;
    Random random(37);
    for (const std::int64_t tokens : {1, 9}) {
      GatedExpertsCase c(key.format, 4, tokens, 2, 20, 256, some_choice(0, 4, 1), random);
      std::byte* const at = key.format == QuantFormat::nvfp4 ? c.up_owners[1].scales_of(11) + 3 : c.up_owners[1].row(11) + 100;
      *at = std::byte{0x7f};
      const GatedExpertsArgs args = c.args(key.precision);
      run_kernel(kernel, args, 1);
      for (std::int64_t i = 0; i < args.y.shape.elements(); ++i) {
        const std::int64_t slot = i / 20;
        const bool is_bad = i % 20 == 11 && slot >= c.gate.begin[1] && slot < c.gate.begin[2];
        EXPECT_EQ(std::isnan(args.y.f32()[i]), is_bad) << i;
      }
    }
  });
}

}  // namespace
}  // namespace reckoner
