// Every kernel of attend_grouped that this machine can run, against the reference and against answers that need none.
#include "cases_attend.h"

namespace reckoner {
namespace {

std::string describe(const GroupedCase& c) {
  return c.q->shape.to_string() + " kv_heads " + std::to_string(c.shape.kv_heads) + " max_context " + std::to_string(c.max_context) +
         " keys " + std::string(name((*c.keys).dtype)) + " values " + std::string(name((*c.values).dtype));
}

GroupedCase some_grouped_case(Random& random) {
  // As published; tiny; more than one vector of heads a kv head; kv heads that begin inside a chunk, or inside a block, of a row.
  const auto shape = random.one_of<GroupedShape>(
      {{96, 8, 128}, {4, 2, 32}, {6, 2, 32}, {40, 2, 24}, {3, 3, 40}, {17, 1, 8}, {36, 2, 64}, {10, 5, 50}, {2, 2, 200}});
  const std::vector<std::int64_t> lengths = {1, 63, 64, 65, 200, 700};
  std::vector<std::int64_t> contexts;
  for (std::int64_t i = random.below(3); i >= 0; --i) contexts.push_back(random.one_of(lengths));
  // Enough keys for more than the least number a piece has, now and then.
  if (shape.heads < 40 && random.below(4) == 0) contexts.push_back(random.one_of<std::int64_t>({1100, 9000}));
  GroupedCase c(shape, random.one_of(kCacheDTypes), random.one_of(kCacheDTypes), contexts,
                some_tokens(contexts, random.one_of<std::int64_t>({1, 2, 5, 11}), random), random);
  // From nearly even weights to few that matter.
  const float sharpness = random.one_of<float>({1.0f, 6.0f, 20.0f});
  for (std::int64_t i = 0; i < c.q->shape.elements(); ++i) c.q->f32()[i] *= sharpness;
  return c;
}

void expect_head_close(const GroupedCase& c, std::int64_t row, double bound, const std::vector<float>& expected) {
  const std::int64_t dim = c.shape.head_dim;
  for (std::int64_t i = row * dim; i < (row + 1) * dim; ++i) {
    const double error = std::fabs(static_cast<double>(c.y->f32()[i]) - expected[static_cast<std::size_t>(i)]);
    // Written so that a NaN fails.
    ASSERT_TRUE(error <= bound) << "token " << row / c.shape.heads << " head " << row % c.shape.heads << " element " << i % dim
                                << ": found " << c.y->f32()[i] << ", expected " << expected[static_cast<std::size_t>(i)]
                                << ", allowed error " << bound;
  }
}

void expect_close(const GroupedCase& c, const std::vector<float>& expected) {
  for (std::int64_t token = 0; token < c.count(); ++token) {
    const TokenCase& place = c.tokens[static_cast<std::size_t>(token)];
    std::vector<std::vector<float>> key_rows, value_rows;
    for (std::int64_t position = 0; position <= place.position; ++position) {
      key_rows.push_back(c.keys.row(place.sequence, position));
      value_rows.push_back(c.values.row(place.sequence, position));
    }
    for (std::int64_t kv_head = 0; kv_head < c.shape.kv_heads; ++kv_head) {
      std::vector<std::vector<float>> keys, values;
      for (const std::vector<float>& row : key_rows) keys.push_back(c.part(row, kv_head));
      for (const std::vector<float>& row : value_rows) values.push_back(c.part(row, kv_head));
      for (std::int64_t head = 0; head < c.shape.heads; ++head) {
        const std::int64_t row = token * c.shape.heads + head;
        if (c.kv_head_of(head) != kv_head) continue;
        expect_head_close(c, row, attend_head_bound(c.q->f32() + row * c.shape.head_dim, keys, values, c.args().scale), expected);
      }
    }
  }
  EXPECT_TRUE(c.y.untouched_around());
}

TEST(AttendGrouped, KernelsMatchTheReferenceOnAnyNumberOfThreads) {
  Random random(1);
  for (int i = 0; i < 40; ++i) {
    const GroupedCase c = some_grouped_case(random);
    SCOPED_TRACE(describe(c));
    reference(c.args());
    const std::vector<float> expected = values_of(*c.y);
    for_each_keyless_kernel<AttendGroupedArgs>([&](const Kernel<AttendGroupedArgs>& kernel) {
      run_on_any_threads(kernel, c.args(), {*c.y}, [&] { std::fill_n(c.y->f32(), c.y->shape.elements(), kNan); });
      expect_close(c, expected);
    });
  }
}

// Many tokens are cut into items otherwise than one: that must not show.
TEST(AttendGrouped, ATokenIsTheSameAloneAndInCompany) {
  Random random(2);
  for (int i = 0; i < 20; ++i) {
    const GroupedCase c = some_grouped_case(random);
    SCOPED_TRACE(describe(c));
    for_each_keyless_kernel<AttendGroupedArgs>([&](const Kernel<AttendGroupedArgs>& kernel) {
      run_kernel(kernel, c.args(), 2);
      const std::vector<float> together = values_of(*c.y);
      std::fill_n(c.y->f32(), c.y->shape.elements(), kNan);
      for (std::int64_t token = 0; token < c.count(); ++token) run_kernel(kernel, c.args(token, 1), 3);
      EXPECT_EQ(together, values_of(*c.y));
    });
  }
}

// A token that attends to one key gets that key's value, to the bit, in every head of the group.
TEST(AttendGrouped, OneKeyGivesItsValueToTheHeadsOfItsGroup) {
  Random random(3);
  for (const GroupedShape& shape : std::vector<GroupedShape>{{96, 8, 128}, {6, 2, 32}, {40, 2, 24}, {10, 5, 50}}) {
    for (const DType dtype : kCacheDTypes) {
      const GroupedCase c(shape, DType::bf16, dtype, {1, 70}, {{1, 0}, {0, 0}}, random);
      SCOPED_TRACE(describe(c));
      const auto expect_values = [&] {
        for (std::int64_t row = 0; row < 2 * shape.heads; ++row) {
          const float* y = c.y->f32() + row * shape.head_dim;
          const std::vector<float> all = c.values.row(c.tokens[static_cast<std::size_t>(row / shape.heads)].sequence, 0);
          ASSERT_EQ(std::vector<float>(y, y + shape.head_dim), c.part(all, c.kv_head_of(row % shape.heads))) << "row " << row;
        }
      };
      reference(c.args());
      expect_values();
      for_each_keyless_kernel<AttendGroupedArgs>([&](const Kernel<AttendGroupedArgs>& kernel) {
        std::fill_n(c.y->f32(), c.y->shape.elements(), kNan);
        run_kernel(kernel, c.args(), 2);
        expect_values();
      });
    }
  }
}

// A query of zeros weighs all keys alike, and sums of small integers are exact: a value left out or counted twice shows.
TEST(AttendGrouped, AZeroQueryGivesTheAverageOfTheValues) {
  Random random(4);
  const GroupedShape shape{96, 8, 128};
  const std::int64_t context = 1600;
  GroupedCase c(shape, DType::f8_e4m3, DType::bf16, {context}, {{0, 1599}, {0, 511}, {0, 512}, {0, 64}}, random);
  std::fill_n(c.q->f32(), c.q->shape.elements(), 0.0f);
  std::vector<std::vector<double>> sums = {std::vector<double>(static_cast<std::size_t>(shape.width()), 0.0)};  // before each position
  for (std::int64_t position = 0; position < context; ++position) {
    std::vector<float> row(static_cast<std::size_t>(shape.width()));
    for (float& value : row) value = static_cast<float>(random.below(9) - 4);
    c.values.set_row(0, position, row);
    sums.push_back(sums.back());
    for (std::size_t i = 0; i < row.size(); ++i) sums.back()[i] += row[i];
  }
  for_each_keyless_kernel<AttendGroupedArgs>([&](const Kernel<AttendGroupedArgs>& kernel) {
    for (const int threads : {1, 40}) {
      run_kernel(kernel, c.args(), threads);
      for (std::int64_t i = 0; i < c.y->shape.elements(); ++i) {
        const std::int64_t head = i / shape.head_dim % shape.heads;
        const std::int64_t keys = c.tokens[static_cast<std::size_t>(i / shape.head_dim / shape.heads)].position + 1;
        const std::int64_t element = c.kv_head_of(head) * shape.head_dim + i % shape.head_dim;
        const double average = sums[static_cast<std::size_t>(keys)][static_cast<std::size_t>(element)] / static_cast<double>(keys);
        // One rounding for 1 / count, one for the product.
        ASSERT_NEAR(c.y->f32()[i], average, 3 * kUlp * std::fabs(average)) << "element " << i;
      }
    }
  });
}

TEST(AttendGrouped, ANanStaysWithItsTokenAndItsGroup) {
  Random random(5);
  for (const DType dtype : kCacheDTypes) {
    // Sequence 0 is clean; of sequence 1 a key of kv head 0 and a value of kv head 2 are bad.
    const GroupedCase c({9, 3, 128}, dtype, dtype, {130, 700}, {{0, 129}, {1, 699}, {0, 100}, {1, 40}, {1, 100}}, random);
    for_each_keyless_kernel<AttendGroupedArgs>([&](const Kernel<AttendGroupedArgs>& kernel) {
      run_kernel(kernel, c.args(), 2);
      const std::vector<float> clean = values_of(*c.y);
      const std::vector<std::byte> key_bytes = c.keys.bytes(), value_bytes = c.values.bytes();
      std::vector<float> row = c.keys.row(1, 77);
      row[5] = kNan;
      c.keys.set_row(1, 77, row);
      row = c.values.row(1, 90);
      row[2 * 128 + 127] = kNan;
      c.values.set_row(1, 90, row);
      run_kernel(kernel, c.args(), 2);
      c.keys.set_bytes(key_bytes);
      c.values.set_bytes(value_bytes);
      for (std::int64_t i = 0; i < std::ssize(clean); ++i) {
        const std::int64_t token = i / 128 / 9;
        const std::int64_t kv_head = c.kv_head_of(i / 128 % 9);
        const bool sees_them = token == 1 || token == 4;
        const bool bad = sees_them && (kv_head == 0 || (kv_head == 2 && i % 128 == 127));
        // What shares a block with the bad element was written anew: its scale may have been rounded otherwise.
        if (sees_them && kv_head == 2 && !bad) continue;
        ASSERT_TRUE(bad ? std::isnan(c.y->f32()[i]) : c.y->f32()[i] == clean[static_cast<std::size_t>(i)])
            << "token " << token << " kv head " << kv_head << " element " << i % 128;
      }
    });
  }
}

TEST(AttendGrouped, RefusesShapesThatDoNotFit) {
  Random random(6);
  const GroupedCase c({6, 2, 32}, DType::f32, DType::f8_e4m3, {10}, {{0, 9}}, random);
  EXPECT_TRUE(check(c.args()).ok());
  AttendGroupedArgs args = c.args();
  args.kv_heads = 4;
  EXPECT_NE(check(args).error().what.find("multiple of kv_heads"), std::string::npos);
  args.kv_heads = 0;
  EXPECT_FALSE(check(args).ok());
  args.kv_heads = 3;
  EXPECT_NE(check(args).error().what.find("row of keys"), std::string::npos);
  args = c.args();
  args.values.row_elements = 32;
  EXPECT_NE(check(args).error().what.find("row of values"), std::string::npos);
  args = c.args();
  args.values.quantised_elements = 65;
  EXPECT_FALSE(check(args).ok());
}

TEST(AttendGrouped, TheWorkspaceFollowsFromShapesAndIsModest) {
  for_each_keyless_kernel<AttendGroupedArgs>([&](const Kernel<AttendGroupedArgs>& kernel) {
    // The published shape, a context of 128k; without data, as while planning.
    const AttendGroupedArgs large{.q = {.shape = {1, 96, 128}}, .kv_heads = 8, .max_context = 131072, .y = {.shape = {1, 96, 128}}};
    EXPECT_GT(kernel.workspace_bytes(large, 16), 0);
    EXPECT_LT(kernel.workspace_bytes(large, 16), 8 << 20);
  });
}

}  // namespace
}  // namespace reckoner
