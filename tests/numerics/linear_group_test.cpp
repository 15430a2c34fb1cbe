// linear_group: each part against the reference, within the tolerance of its own precision; bad tokens, and what an exact part must not
// depend on.
#include <algorithm>

#include "linear_support.h"

namespace reckoner {
namespace {

void expect_group_matches_reference(const Kernel<LinearGroupArgs>& kernel, const GroupCase& c, Precision precision) {
  const LinearGroupArgs args = c.args(precision);
  SCOPED_TRACE(args.x.shape.to_string() + (c.normed ? ", normed, to " : " to ") + std::to_string(args.count) + " weights");
  reference(args);
  std::vector<Floats> expected;
  for (const OwnedTensor& y : c.y) expected.push_back(values_of(*y));
  run_kernel(kernel, args, 1);
  for (int part = 0; part < args.count; ++part) {
    SCOPED_TRACE(part);
    const auto at = static_cast<std::size_t>(part);
    expect_close(*c.y[at], expected[at], group_magnitudes(args, part), linear_group_tolerance(args, part), args.x.dim(1));
    EXPECT_TRUE(c.y[at].untouched_around());
  }
}

TEST(LinearGroup, MatchesReference) {
  for_each_kernel<LinearGroupArgs>([](const Kernel<LinearGroupArgs>& kernel, const Key& key) {
    Random random(31);
    for (const std::int64_t cols : {96, 128, 256, 640, 2048, 6144}) {
      for (const std::int64_t tokens : {1, 2, 3, 4, 5, 7, 8, 9, 40}) {
        const std::int64_t few = random.one_of<std::int64_t>({1, 15, 16, 17, 33}), more = random.one_of<std::int64_t>({32, 67, 130, 300});
        for (const bool normed : {false, true}) {
          const std::int64_t count = 1 + random.below(4);
          std::vector<std::int64_t> rows = {more, few, 3, 32};
          rows.resize(static_cast<std::size_t>(count));
          expect_group_matches_reference(kernel, {key.format, {tokens, cols, rows, normed}, random}, key.precision);
        }
      }
    }
  });
}

// More rows than a GPU works on at a time, and blocks that share them unevenly.
TEST(LinearGroup, MatchesReferenceOnManyRows) {
  for_each_kernel<LinearGroupArgs>([](const Kernel<LinearGroupArgs>& kernel, const Key& key) {
    if (key.precision == Precision::exact || (key.format != QuantFormat::nvfp4 && key.format != QuantFormat::bf16)) return;
    Random random(32);
    expect_group_matches_reference(kernel, {key.format, {1, 384, {9001, 1, 333}, true}, random}, key.precision);
    expect_group_matches_reference(kernel, {key.format, {8, 128, {20'001, 700}, false}, random}, key.precision);
  });
}

// More tokens than a tile has, and about as many: also so few rows that the columns are shared out.
TEST(LinearGroup, MatchesReferenceOnManyTokens) {
  for_each_kernel<LinearGroupArgs>([](const Kernel<LinearGroupArgs>& kernel, const Key& key) {
    if (!has_matrix_kernels(key.format)) return;
    Random random(35);
    for (const std::int64_t cols : {128, 2176}) {
      for (const std::int64_t tokens : {16, 17, 65, 130}) {
        const bool normed = tokens % 2 == 0;
        expect_group_matches_reference(
            kernel, {key.format, {tokens, cols, {random.one_of<std::int64_t>({1, 17, 200}), 9, 3, 33}, normed}, random}, key.precision);
      }
    }
  });
}

// A part that is exact has the same bits whatever else is in the batch.
TEST(LinearGroup, ExactPartDoesNotDependOnTheBatch) {
  for_each_kernel<LinearGroupArgs>([](const Kernel<LinearGroupArgs>& kernel, const Key& key) {
    Random random(33);
    for (const std::int64_t tokens : {2, 5, 8, 11}) {
      const GroupCase c(key.format, {tokens, 256, {40, 33}, false}, random);
      const LinearGroupArgs args = c.args(key.precision);
      run_kernel(kernel, args, 1);
      const Floats all = values_of(*c.y[1]);
      for (std::int64_t token = 0; token < tokens; ++token) {
        LinearGroupArgs alone = args;
        alone.x = args.x.rows(token, 1);
        for (LinearPart& part : alone.parts) {
          if (!part.y.empty()) part.y = part.y.rows(token, 1);
        }
        run_kernel(kernel, alone, 1);
        EXPECT_TRUE(same_bits(alone.parts[1].y.f32(), all.data() + token * 33, 33)) << "token " << token << " of " << tokens;
      }
    }
  });
}

// A NaN, in a token or in the norm's sum of squares by overflow, stays in its row.
TEST(LinearGroup, BadTokenIsNotHiddenAndStaysInItsRow) {
  for_each_kernel<LinearGroupArgs>([](const Kernel<LinearGroupArgs>& kernel, const Key& key) {
    Random random(34);
    for (const std::int64_t tokens : {2, 5, 8}) {
      for (const bool normed : {false, true}) {
        const GroupCase c(key.format, {tokens, 256, {19, 8}, normed}, random);
        const LinearGroupArgs args = c.args(key.precision);
        run_kernel(kernel, args, 1);
        const Floats clean = values_of(*c.y[0]);
        c.x->f32()[1 * 256 + 200] = kNan;
        run_kernel(kernel, args, 1);
        for (std::int64_t token = 0; token < tokens; ++token) {
          const float* y = c.y[0]->f32() + token * 19;
          const bool as_it_should = token == 1 ? std::all_of(y, y + 19, [](float value) { return std::isnan(value); })
                                               : same_bits(y, clean.data() + token * 19, 19);
          EXPECT_TRUE(as_it_should) << "token " << token;
        }
      }
    }
  });
}

}  // namespace
}  // namespace reckoner
