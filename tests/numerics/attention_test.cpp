// Every kernel of attend_latent and index_select that this machine can run, against the references.
#include <algorithm>
#include <limits>

#include "cases_attend.h"

namespace reckoner {
namespace {

// ---- attend_latent ----

AttendCase some_attend_case(Random& random) {
  const auto latent = random.one_of<std::int64_t>({8, 32, 40, 160, 512});
  const std::vector<std::int64_t> lengths = {1, 63, 64, 65, 200, 700};
  std::vector<std::int64_t> contexts;
  for (std::int64_t i = random.below(3); i >= 0; --i) contexts.push_back(random.one_of(lengths));
  // Enough keys for more than the least number a piece has, now and then.
  if (latent < 512 && random.below(4) == 0) contexts.push_back(random.one_of<std::int64_t>({1100, 9000}));
  AttendCase c(random.one_of<std::int64_t>({1, 3, 8, 16, 17, 40}), latent, random.one_of<std::int64_t>({2, 16, 64}),
               random.one_of(kCacheDTypes), random.one_of<std::int64_t>({0, 0, 1, 7, 64, 600}), contexts,
               some_tokens(contexts, random.one_of<std::int64_t>({1, 2, 5, 11}), random), random);
  // From nearly even weights to few that matter.
  const float sharpness = random.one_of<float>({1.0f, 6.0f, 20.0f});
  for (std::int64_t i = 0; i < c.q->shape.elements(); ++i) c.q->f32()[i] *= sharpness;
  return c;
}

void expect_attend_close(const AttendCase& c, const std::vector<float>& expected) {
  for (std::int64_t row = 0; row < c.count() * c.heads; ++row) {
    const double bound = attend_bound(c, row / c.heads, row % c.heads);
    for (std::int64_t i = row * c.latent; i < (row + 1) * c.latent; ++i) {
      const double error = std::fabs(static_cast<double>(c.y->f32()[i]) - expected[static_cast<std::size_t>(i)]);
      // Written so that a NaN fails.
      if (!(error <= bound)) {
        ADD_FAILURE() << "token " << row / c.heads << " head " << row % c.heads << " element " << i % c.latent << ": found "
                      << c.y->f32()[i] << ", expected " << expected[static_cast<std::size_t>(i)] << ", allowed error " << bound;
        return;
      }
    }
  }
  EXPECT_TRUE(c.y.untouched_around());
}

std::string describe(const AttendCase& c) {
  return c.q->shape.to_string() + " latent " + std::to_string(c.latent) + " top_k " + std::to_string(c.top_k) + " max_context " +
         std::to_string(c.max_context) + " cache " + std::string(name((*c.cache).dtype));
}

TEST(AttendLatent, KernelsMatchTheReferenceOnAnyNumberOfThreads) {
  Random random(1);
  for (int i = 0; i < 40; ++i) {
    const AttendCase c = some_attend_case(random);
    SCOPED_TRACE(describe(c));
    reference(c.args());
    const std::vector<float> expected = values_of(*c.y);
    for_each_keyless_kernel<AttendLatentArgs>([&](const Kernel<AttendLatentArgs>& kernel) {
      run_on_any_threads(kernel, c.args(), {*c.y}, [&] { std::fill_n(c.y->f32(), c.y->shape.elements(), kNan); });
      expect_attend_close(c, expected);
    });
  }
}

// Many tokens are cut into items otherwise than one: that must not show.
TEST(AttendLatent, ATokenIsTheSameAloneAndInCompany) {
  Random random(2);
  for (int i = 0; i < 20; ++i) {
    const AttendCase c = some_attend_case(random);
    SCOPED_TRACE(describe(c));
    for_each_keyless_kernel<AttendLatentArgs>([&](const Kernel<AttendLatentArgs>& kernel) {
      run_kernel(kernel, c.args(), 2);
      const std::vector<float> together = values_of(*c.y);
      std::fill_n(c.y->f32(), c.y->shape.elements(), kNan);
      for (std::int64_t token = 0; token < c.count(); ++token) run_kernel(kernel, c.args(token, 1), 3);
      EXPECT_EQ(together, values_of(*c.y));
    });
  }
}

TEST(AttendLatent, ThePublishedShape) {
  Random random(3);
  const std::vector<std::int64_t> contexts = {2500};
  for (const DType dtype : kCacheDTypes) {
    const AttendCase c(64, 512, 64, dtype, 2048, contexts, {{0, 2499}, {0, 2300}}, random);
    reference(c.args());
    const std::vector<float> expected = values_of(*c.y);
    for_each_keyless_kernel<AttendLatentArgs>([&](const Kernel<AttendLatentArgs>& kernel) {
      run_kernel(kernel, c.args(), 2);
      expect_attend_close(c, expected);
    });
  }
}

// What a rank has of the published shape, for few tokens and for more than a launch gives many blocks each: the bits are those that each
// token has alone.
TEST(AttendLatent, FewHeadsOfThePublishedShape) {
  Random random(12);
  const std::vector<std::int64_t> contexts = {2500, 300};
  for (const std::int64_t top_k : {2048, 0, 600}) {
    for (const std::int64_t tokens : {2, 18}) {
      AttendCase c(tokens == 2 ? 8 : 5, 512, 64, DType::bf16, top_k, contexts, some_tokens(contexts, tokens, random), random);
      // Some tokens whose weights are far apart, so that units of keys are rescaled.
      for (std::int64_t i = 0; i < c.q->shape.elements() / 2; ++i) c.q->f32()[i] *= 20;
      SCOPED_TRACE(describe(c));
      reference(c.args());
      const std::vector<float> expected = values_of(*c.y);
      for_each_keyless_kernel<AttendLatentArgs>([&](const Kernel<AttendLatentArgs>& kernel) {
        std::fill_n(c.y->f32(), c.y->shape.elements(), kNan);
        run_kernel(kernel, c.args(), 2);
        expect_attend_close(c, expected);
        const std::vector<float> together = values_of(*c.y);
        for (std::int64_t token = 0; token < tokens; ++token) run_kernel(kernel, c.args(token, 1), 3);
        EXPECT_EQ(together, values_of(*c.y));
      });
    }
  }
}

// A query of zeros weighs all keys alike, and sums of small integers are exact: a key left out or counted twice shows at any shape.
TEST(AttendLatent, AZeroQueryGivesTheAverageOfTheRows) {
  Random random(8);
  for (const std::int64_t top_k : {0, 2048}) {
    for (const std::int64_t heads : {8, 20}) {
      AttendCase c(heads, 512, 64, DType::bf16, top_k, {2500}, {{0, 2499}, {0, 1087}, {0, 511}, {0, 512}, {0, 64}}, random);
      std::fill_n(c.q->f32(), c.q->shape.elements(), 0.0f);
      for (std::int64_t position = 0; position < 2500; ++position) {
        std::vector<float> row(576);
        for (float& value : row) value = static_cast<float>(random.below(9) - 4);
        c.cache.set_row(0, position, row);
      }
      reference(c.args());
      const std::vector<float> expected = values_of(*c.y);
      for_each_keyless_kernel<AttendLatentArgs>([&](const Kernel<AttendLatentArgs>& kernel) {
        for (const int threads : {1, 6}) {
          run_kernel(kernel, c.args(), threads);
          // One rounding for 1 / count, one for the product, one in the reference; which also sums count doubles that are not exact.
          for (std::size_t i = 0; i < expected.size(); ++i) {
            ASSERT_NEAR(c.y->f32()[i], expected[i], 4 * kUlp * std::fabs(expected[i]) + 1e-11) << "element " << i;
          }
        }
      });
    }
  }
}

// A token that attends to one key gets that key's row: shows how every code of a quantised row is read.
TEST(AttendLatent, OneKeyGivesItsRow) {
  Random random(9);
  for (const std::int64_t latent : {32, 160, 254}) {
    AttendCase c(3, latent, 6, DType::f8_e4m3, 0, {1}, {{0, 0}}, random);
    std::fill_n(c.q->f32(), c.q->shape.elements(), 0.0f);
    std::byte* row = (*c.cache).row(c.cache.pages(0), 0);
    const std::vector<float> scales = {3.0f, 0x1.8p-20f};  // exact products, so that nothing rounds
    std::memcpy(row + (*c.cache).scales_offset_bytes(), scales.data(), latent > kCacheBlock ? 8 : 4);
    for (int first = 0; first < 256; first += static_cast<int>(latent)) {
      std::vector<float> expected;
      for (int i = 0; i < latent; ++i) {
        int code = (first + i) % 256;
        if (code % 128 == 127) code = 0;  // NaN
        row[i] = static_cast<std::byte>(code);
        expected.push_back(e4m3_to_f32(static_cast<std::uint8_t>(code)) * scales[i < kCacheBlock ? 0 : 1]);
      }
      for_each_keyless_kernel<AttendLatentArgs>([&](const Kernel<AttendLatentArgs>& kernel) {
        run_kernel(kernel, c.args(), 1);
        for (int i = 0; i < 3 * latent; ++i) ASSERT_EQ(c.y->f32()[i], expected[static_cast<std::size_t>(i % latent)]) << "element " << i;
      });
    }
  }
}

TEST(AttendLatent, ABadElementOfAQuantisedRowIsSeen) {
  Random random(10);
  for (const int bad : {0, 31, 40, 150, 159, 160, 175}) {  // whole chunks, the last, and the part that is not quantised
    AttendCase c(17, 160, 16, DType::f8_e4m3, 0, {130}, {{0, 129}, {0, 5}}, random);
    std::vector<float> row = c.cache.row(0, 77);
    row[static_cast<std::size_t>(bad)] = bad < 160 ? -kInfinity : kNan;
    c.cache.set_row(0, 77, row);
    for_each_keyless_kernel<AttendLatentArgs>([&](const Kernel<AttendLatentArgs>& kernel) {
      run_kernel(kernel, c.args(), 2);
      for (std::int64_t head = 0; head < 34; ++head) {
        const float* y = c.y->f32() + head * 160;
        const double sum = std::accumulate(y, y + 160, 0.0);
        EXPECT_EQ(std::isfinite(sum), head >= 17) << "element " << bad << " head " << head;
      }
    });
  }
}

TEST(AttendLatent, NothingToAttendToGivesZeros) {
  Random random(4);
  const AttendCase c(17, 40, 16, DType::f32, 600, {700}, {{0, 699}, {0, 5}, {0, 650}}, random);
  std::fill_n(c.counts->i32(), 3, 0);
  for_each_keyless_kernel<AttendLatentArgs>([&](const Kernel<AttendLatentArgs>& kernel) {
    for (const int threads : {1, 8}) {
      std::fill_n(c.y->f32(), c.y->shape.elements(), kNan);
      run_kernel(kernel, c.args(), threads);
      for (const float value : values_of(*c.y)) EXPECT_EQ(value, 0.0f);
    }
  });
}

TEST(AttendLatent, ANanStaysWithItsToken) {
  Random random(5);
  // Sequence 0 is clean, sequence 1 holds a bad row; token 2 has a bad query in head 1.
  AttendCase c(20, 32, 16, DType::bf16, 0, {130, 700}, {{0, 129}, {1, 699}, {0, 100}, {1, 40}, {0, 3}}, random);
  for_each_keyless_kernel<AttendLatentArgs>([&](const Kernel<AttendLatentArgs>& kernel) {
    run_kernel(kernel, c.args(), 2);
    const std::vector<float> clean = values_of(*c.y);
    const std::vector<float> row = c.cache.row(1, 77);
    std::vector<float> bad_row = row;
    bad_row[40] = kNan;  // in the rotated part: in the scores only
    c.cache.set_row(1, 77, bad_row);
    float& element = c.q->f32()[(2 * c.heads + 1) * 48 + 5];
    const float good = element;
    element = kNan;
    run_kernel(kernel, c.args(), 2);
    element = good;
    c.cache.set_row(1, 77, row);
    for (std::int64_t i = 0; i < std::ssize(clean); ++i) {
      const std::int64_t head = i / c.latent;  // over all tokens
      const bool bad = head / c.heads == 1 || head == 2 * c.heads + 1;
      const float found = c.y->f32()[i];
      EXPECT_TRUE(bad ? std::isnan(found) : found == clean[static_cast<std::size_t>(i)]) << "token " << head / c.heads;
    }
  });
}

TEST(AttendLatent, LargeScoresDoNotOverflow) {
  Random random(6);
  for (const float factor : {1e4f, -1e4f, 1e8f}) {
    const AttendCase c(3, 32, 16, DType::f32, 0, {700}, {{0, 699}, {0, 64}}, random);
    for (std::int64_t i = 0; i < c.q->shape.elements(); ++i) c.q->f32()[i] *= factor;
    reference(c.args());
    const std::vector<float> expected = values_of(*c.y);
    for_each_keyless_kernel<AttendLatentArgs>([&](const Kernel<AttendLatentArgs>& kernel) {
      run_kernel(kernel, c.args(), 2);
      // The largest score wins by far more than its error, in these cases: the answer is that key's row.
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(c.y->f32()[i], expected[i], 0.05) << "factor " << factor;
    });
  }
}

TEST(AttendLatent, TheWorkspaceFollowsFromShapesAndIsModest) {
  Random random(7);
  const AttendCase c = some_attend_case(random);
  const auto without_data = [](Tensor tensor) {
    tensor.data = nullptr;
    return tensor;
  };
  AttendLatentArgs planned = c.args();
  planned.q = without_data(planned.q);
  planned.y = without_data(planned.y);
  planned.places = {.positions = without_data(planned.places.positions), .pages = {}};
  planned.cache.base = nullptr;
  if (c.top_k > 0) {
    planned.selection = {.counts = without_data(planned.selection.counts), .positions = without_data(planned.selection.positions)};
  }
  for_each_keyless_kernel<AttendLatentArgs>([&](const Kernel<AttendLatentArgs>& kernel) {
    for (const int threads : {1, 2, 16}) EXPECT_EQ(kernel.workspace_bytes(planned, threads), kernel.workspace_bytes(c.args(), threads));
    // The published shape, a context of 128k without selection.
    const AttendLatentArgs large{.q = {.shape = {1, 64, 576}}, .max_context = 131072, .y = {.shape = {1, 64, 512}}};
    EXPECT_LT(kernel.workspace_bytes(large, 16), 16 << 20);
  });
}

// ---- index_select ----

std::string describe(const IndexCase& c) {
  return c.q->shape.to_string() + " top_k " + std::to_string(c.top_k) + " max_context " + std::to_string(c.max_context) + " cache " +
         std::string(name((*c.cache).dtype));
}

IndexCase some_index_case(Numbers numbers, Random& random) {
  const std::vector<std::int64_t> lengths = {1, 63, 64, 65, 200, 700, 1300};
  std::vector<std::int64_t> contexts;
  for (std::int64_t i = random.below(3); i >= 0; --i) contexts.push_back(random.one_of(lengths));
  return {random.one_of<std::int64_t>({1, 3, 8, 16, 17, 32}),
          random.one_of<std::int64_t>({2, 8, 16, 32, 40, 64, 128, 144}),
          random.one_of(kCacheDTypes),
          random.one_of<std::int64_t>({1, 2, 16, 63, 64, 199, 200, 300}),
          contexts,
          some_tokens(contexts, random.one_of<std::int64_t>({1, 2, 9, 20}), random),
          numbers,
          random};
}

// What a float kernel may get wrong of a score: (dim + 2) ulp for each dot product and its weight, heads + 4 for their sum; twice that.
struct Score {
  double value = 0;
  double error = 0;
};

Score score_of(const IndexCase& c, std::int64_t token, std::int64_t position) {
  const std::vector<float> key = c.cache.row(c.tokens[static_cast<std::size_t>(token)].sequence, position);
  Score score;
  for (std::int64_t head = 0; head < c.heads; ++head) {
    const float* q = c.q->f32() + (token * c.heads + head) * c.dim;
    double dot = 0, magnitude = 0;
    for (std::int64_t i = 0; i < c.dim; ++i) {
      dot += static_cast<double>(q[i]) * key[static_cast<std::size_t>(i)];
      magnitude += std::fabs(static_cast<double>(q[i]) * key[static_cast<std::size_t>(i)]);
    }
    const double weight = static_cast<double>(c.weights->f32()[token * c.heads + head]) * c.args().scale;
    score.value += weight * std::max(dot, 0.0);
    score.error += 2 * std::fabs(weight) * magnitude * kUlp * static_cast<double>(c.dim + c.heads + 6);
  }
  return score;
}

// The selection of a token is one that scores within their errors may give: nothing outside is surely better than something inside.
void expect_selects_the_best(const IndexCase& c, std::int64_t token) {
  const std::int64_t context = c.tokens[static_cast<std::size_t>(token)].position + 1;
  const std::int32_t* positions = c.positions->i32() + token * c.top_k;
  const std::int32_t count = c.counts->i32()[token];
  ASSERT_EQ(count, std::min(context, c.top_k));
  for (std::int64_t i = 0; i < c.top_k; ++i) {
    if (i >= count) {
      ASSERT_EQ(positions[i], IndexCase::kUnwritten);
    } else {
      ASSERT_TRUE(positions[i] >= 0 && positions[i] < context && (i == 0 || positions[i - 1] < positions[i]));
    }
  }
  double worst_inside = std::numeric_limits<double>::infinity();
  double best_outside = -worst_inside;
  for (std::int64_t position = 0; position < context; ++position) {
    const Score score = score_of(c, token, position);
    if (std::binary_search(positions, positions + count, position)) {
      worst_inside = std::min(worst_inside, score.value + score.error);
    } else {
      best_outside = std::max(best_outside, score.value - score.error);
    }
  }
  EXPECT_GE(worst_inside, best_outside) << "token " << token;
}

TEST(IndexSelect, KernelsSelectTheBestOnAnyNumberOfThreads) {
  Random random(11);
  for (int i = 0; i < 40; ++i) {
    const IndexCase c = some_index_case(Numbers::real, random);
    SCOPED_TRACE(describe(c));
    for_each_keyless_kernel<IndexSelectArgs>([&](const Kernel<IndexSelectArgs>& kernel) {
      run_on_any_threads(kernel, c.args(), {*c.counts, *c.positions}, [&] { c.reset(); });
      for (std::int64_t token = 0; token < c.count(); ++token) expect_selects_the_best(c, token);
      EXPECT_TRUE(c.positions.untouched_around());
      EXPECT_TRUE(c.counts.untouched_around());
    });
  }
}

void expect_equals_reference(const IndexCase& c) {
  SCOPED_TRACE(describe(c));
  c.reset();
  reference(c.args());
  const std::vector<std::int32_t> expected = c.found();
  for_each_keyless_kernel<IndexSelectArgs>([&](const Kernel<IndexSelectArgs>& kernel) {
    c.reset();
    run_kernel(kernel, c.args(), 2);
    EXPECT_EQ(c.found(), expected);
  });
}

TEST(IndexSelect, ExactScoresWithTiesEqualTheReference) {
  Random random(12);
  for (int i = 0; i < 60; ++i) expect_equals_reference(some_index_case(Numbers::small_integers, random));
}

TEST(IndexSelect, ThePublishedShapes) {
  Random random(17);
  for (const std::int64_t heads : {8, 32, 64}) {
    for (const std::int64_t top_k : {64, 300}) {
      const std::vector<TokenCase> tokens = {{0, 2499}, {0, 2300}, {1, 320}, {1, 63}, {0, 1024}};
      const IndexCase c(heads, 128, DType::bf16, top_k, {2500, 321}, tokens, Numbers::real, random);
      SCOPED_TRACE(describe(c));
      for_each_keyless_kernel<IndexSelectArgs>([&](const Kernel<IndexSelectArgs>& kernel) {
        c.reset();
        run_kernel(kernel, c.args(), 2);
        for (std::int64_t token = 0; token < c.count(); ++token) expect_selects_the_best(c, token);
      });
      expect_equals_reference(IndexCase(heads, 128, DType::bf16, top_k, {2500, 321}, tokens, Numbers::small_integers, random));
    }
  }
}

// Contexts which one block of a GPU takes in registers, and those that many blocks share; also where the best lie in few places, and where
// all scores are equal.
TEST(IndexSelect, LongContexts) {
  Random random(18);
  for (const std::int64_t context : {1024, 8192, 8193, 16'384, 16'385, 20'001, 70'001}) {
    const std::int64_t top_k = std::min(random.one_of<std::int64_t>({1, 64, 2048}), context);
    const std::vector<TokenCase> tokens = {{0, context - 1}, {0, context / 2}, {0, top_k - 1}, {0, 0}};
    const IndexCase c(8, 128, DType::bf16, top_k, {context}, tokens, Numbers::small_integers, random);
    expect_equals_reference(c);
    for (std::int64_t position = context / 3; position < context / 3 + 100; ++position)
      c.cache.set_row(0, position, std::vector<float>(128, 3.0f));
    expect_equals_reference(c);
    std::fill_n(c.q->f32(), c.q->shape.elements(), 0.0f);
    expect_equals_reference(c);
  }
}

TEST(IndexSelect, LongContextsOfAnyScores) {
  Random random(20);
  for (const std::int64_t context : {8000, 40'001}) {
    const IndexCase c(8, 128, DType::bf16, 2048, {context}, {{0, context - 1}, {0, context / 3}}, Numbers::real, random);
    SCOPED_TRACE(describe(c));
    for_each_keyless_kernel<IndexSelectArgs>([&](const Kernel<IndexSelectArgs>& kernel) {
      c.reset();
      run_kernel(kernel, c.args(), 2);
      for (std::int64_t token = 0; token < c.count(); ++token) expect_selects_the_best(c, token);
    });
  }
}

TEST(IndexSelect, AContextUpToTopKIsSelectedAsAWhole) {
  Random random(19);
  for (const std::int64_t context : {1, 63, 64, 300, 2048}) {
    const std::vector<TokenCase> tokens = {{0, context - 1}, {0, 0}, {0, context / 2}};
    expect_equals_reference(IndexCase(8, 128, DType::bf16, 2048, {context}, tokens, Numbers::small_integers, random));
    expect_equals_reference(IndexCase(3, 40, DType::f32, 2048, {context}, tokens, Numbers::small_integers, random));
  }
}

TEST(IndexSelect, AtTheBorderOfTopK) {
  Random random(13);
  for (const std::int64_t top_k : {1, 64, 200}) {
    std::vector<TokenCase> tokens;
    for (std::int64_t position = std::max<std::int64_t>(0, top_k - 2); position <= top_k + 1; ++position) tokens.push_back({0, position});
    expect_equals_reference(IndexCase(8, 16, DType::f32, top_k, {top_k + 2}, tokens, Numbers::small_integers, random));
  }
}

TEST(IndexSelect, EqualScoresGoToTheEarlierPositions) {
  Random random(14);
  for (const float weight : {0.0f, -0.0f, -1.0f, 1.0f}) {
    for (const float element : {0.0f, 1.0f, -1.0f}) {
      IndexCase c(3, 8, DType::f32, 50, {700}, {{0, 699}, {0, 50}}, Numbers::small_integers, random);
      std::fill_n(c.weights->f32(), c.weights->shape.elements(), weight);
      std::fill_n(c.q->f32(), c.q->shape.elements(), element);
      // The scores are zeros of both signs, or all the same number.
      for (std::int64_t position = 0; position < 700; ++position) c.cache.set_row(0, position, std::vector<float>(8, 1.0f));
      expect_equals_reference(c);
      for (std::int32_t i = 0; i < 50; ++i) EXPECT_EQ(c.positions->i32()[i], i);
    }
  }
}

TEST(IndexSelect, ATokenIsTheSameAloneAndInCompany) {
  Random random(15);
  for (int i = 0; i < 30; ++i) {
    const IndexCase c = some_index_case(Numbers::real, random);
    SCOPED_TRACE(describe(c));
    for_each_keyless_kernel<IndexSelectArgs>([&](const Kernel<IndexSelectArgs>& kernel) {
      c.reset();
      run_kernel(kernel, c.args(), 2);
      const std::vector<std::int32_t> together = c.found();
      c.reset();
      for (std::int64_t token = 0; token < c.count(); ++token) run_kernel(kernel, c.args(token, 1), 1);
      EXPECT_EQ(c.found(), together);
    });
  }
}

void expect_bad_rows_stay_alone(std::int64_t heads, std::int64_t dim, DType dtype) {
  Random random(16);
  IndexCase c(heads, dim, dtype, 64, {700, 300}, {{0, 699}, {1, 299}, {0, 400}, {1, 70}, {0, 650}}, Numbers::small_integers, random);
  const std::vector<std::int32_t> before = [&] {
    reference(c.args());
    return c.found();
  }();
  // Sequence 1 is bad in half of its rows; of token 4 the query.
  for (std::int64_t position = 0; position < 300; position += 2)
    c.cache.set_row(1, position, std::vector<float>(static_cast<std::size_t>(dim), kNan));
  c.q->f32()[4 * heads * dim] = kNan;
  for_each_keyless_kernel<IndexSelectArgs>([&](const Kernel<IndexSelectArgs>& kernel) {
    c.reset();
    run_kernel(kernel, c.args(), 2);
    for (std::int64_t token = 0; token < c.count(); ++token) {
      const std::int32_t* positions = c.positions->i32() + token * 64;
      for (std::int64_t i = 0; i < 64; ++i) {
        ASSERT_TRUE(positions[i] >= 0 && positions[i] <= c.tokens[static_cast<std::size_t>(token)].position);
        ASSERT_TRUE(i == 0 || positions[i] > positions[i - 1]);
      }
      if (token == 0 || token == 2) { EXPECT_TRUE(std::equal(positions, positions + 64, before.begin() + 5 + token * 64)); }
      // A score that is a number beats one that is not.
      if (token == 1) {
        for (std::int64_t i = 0; i < 64; ++i) EXPECT_EQ(positions[i] % 2, 1);
      }
    }
  });
  expect_equals_reference(c);
}

TEST(IndexSelect, BadRowsSelectPositionsThatExistAndStayAlone) {
  expect_bad_rows_stay_alone(17, 40, DType::f32);
  expect_bad_rows_stay_alone(8, 128, DType::bf16);
}

TEST(IndexSelect, TheWorkspaceIsModest) {
  for_each_keyless_kernel<IndexSelectArgs>([&](const Kernel<IndexSelectArgs>& kernel) {
    const IndexSelectArgs large{.q = {.shape = {512, 32, 128}},
                                .weights = {.shape = {512, 32}},
                                .keys = {.row_elements = 128},
                                .max_context = 131072,
                                .selection = {.counts = {.shape = {512}}, .positions = {.shape = {512, 2048}}}};
    EXPECT_LT(kernel.workspace_bytes(large, 16), kModestBytes);
  });
}

}  // namespace
}  // namespace reckoner
