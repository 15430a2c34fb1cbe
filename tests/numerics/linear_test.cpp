// Every kernel of linear, linear_experts, latent_query and latent_value that this machine can run: against the reference, within the
// derived tolerance; and what the tolerance does not say: same bits for any number of threads and (exact) whatever else is in the batch.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "linear_support.h"

namespace reckoner {
namespace {

constexpr int kCases = 48;  // of each op, kernel and key

// ---- linear ----

std::string describe(const LinearCase& c) {
  return c.x->shape.to_string() + " x " + Shape{c.w->rows, c.w->cols}.to_string() + "^T from row " + std::to_string(c.w->first_row);
}

LinearCase some_linear_case(QuantFormat format, Random& random) {
  const std::int64_t tokens = some_tokens(random);
  const std::int64_t rows = some_rows(random);
  return {format, tokens, rows, some_cols(random, format), random, some_first_row(random)};
}

void expect_matches_reference(const Kernel<LinearArgs>& kernel, const LinearCase& c, Precision precision, int threads) {
  SCOPED_TRACE(describe(c));
  reference(c.args(precision));
  const Floats expected = values_of(*c.y);
  run_kernel(kernel, c.args(precision), threads);
  expect_close(*c.y, expected, linear_magnitudes(c), linear_tolerance(precision, c.w->cols), c.w->cols);
  EXPECT_TRUE(c.y.untouched_around());
}

TEST(Linear, MatchesReference) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    Random random(1);
    for (int i = 0; i < kCases; ++i) expect_matches_reference(kernel, some_linear_case(key.format, random), key.precision, 1 + i % 3);
  });
}

// Whole tiles of columns, few and many, which other kernels take than the odd ones above.
TEST(Linear, MatchesReferenceOnWholeTiles) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    Random random(21);
    for (const std::int64_t cols : {128, 512, 640, 2048, 2176}) {
      for (const std::int64_t tokens : {1, 2, 8, 9, 64}) {
        const std::int64_t rows = random.one_of<std::int64_t>({1, 15, 16, 17, 100});
        expect_matches_reference(kernel, {key.format, tokens, rows, cols, random, some_first_row(random)}, key.precision, 2);
      }
    }
  });
}

// More tokens than a tile has, and about as many: also a weight whose columns are shared out, as it has few rows.
TEST(Linear, MatchesReferenceOnManyTokens) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    if (key.precision == Precision::exact || !has_matrix_kernels(key.format)) return;
    Random random(24);
    for (const std::int64_t cols : {192, 640, 2176}) {
      for (const std::int64_t tokens : {17, 65, 200}) {
        const std::int64_t rows = cols == 640 && tokens == 17 ? 200 : random.one_of<std::int64_t>({1, 15, 17});
        expect_matches_reference(kernel, {key.format, tokens, rows, cols, random, some_first_row(random)}, key.precision, 2);
      }
    }
  });
}

// More rows than a GPU works on at a time.
TEST(Linear, MatchesReferenceOnManyRows) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    if (key.precision == Precision::exact || (key.format != QuantFormat::nvfp4 && key.format != QuantFormat::bf16)) return;
    Random random(22);
    expect_matches_reference(kernel, {key.format, 1, 9001, 2176, random, 0}, key.precision, 2);
    expect_matches_reference(kernel, {key.format, 2, 70'001, 128, random, 0}, key.precision, 2);
  });
}

// As the heads of kv_b_proj lie in it: 448 rows each, whose blocks of scales are cut between two heads.
TEST(Linear, MatchesReferenceOnRowsOfALargerMatrix) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    Random random(7);
    for (const std::int64_t first_row : {1, 64, 100, 127, 448, 3 * 448}) {
      for (const std::int64_t tokens : {1, 3, 40}) {
        const std::int64_t rows = random.one_of<std::int64_t>({1, 65, 192, 256, 300});
        const std::int64_t cols = one_width(random, key.format, {160, 288}, {130, 257});
        expect_matches_reference(kernel, {key.format, tokens, rows, cols, random, first_row}, key.precision, 2);
      }
    }
  });
}

// Tokens that pick one column each, so that y holds the weights: each must be right to the last bit, whatever its code. Where the format
// gives no finite number, y must not be finite either.
void expect_weights(const Kernel<LinearArgs>& kernel, const LinearCase& c, Precision precision) {
  const std::int64_t cols = c.w->cols;
  const Floats expected = dequantised(*c.w);
  for (std::int64_t i = 0; i < c.x->shape.elements(); ++i) c.x->f32()[i] = i / cols == i % cols ? 1.0f : 0.0f;
  // All at once, then each token alone.
  for (const std::int64_t tokens : {cols, std::int64_t{1}}) {
    for (std::int64_t first = 0; first < cols; first += tokens) {
      LinearArgs args = c.args(precision);
      args.x = args.x.rows(first, tokens);
      args.y = args.y.rows(first, tokens);
      run_kernel(kernel, args, 1);
      for (std::int64_t i = 0; i < tokens * c.w->rows; ++i) {
        const std::int64_t row = i % c.w->rows;
        const float w = expected[static_cast<std::size_t>(row * cols + first + i / c.w->rows)];
        const float y = args.y.f32()[i];
        ASSERT_TRUE(std::isfinite(w) ? y == w : !std::isfinite(y)) << "row " << row << ": found " << y << ", expected " << w;
      }
    }
  }
}

TEST(Linear, EveryCodeIsRight) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    if (!is_quantised(key.format)) return;
    Random random(8);
    LinearCase c(key.format, 32, 256, 32, random);
    for (int row = 0; row < 256; ++row) std::memset(c.w.row(row), row, static_cast<std::size_t>(info(key.format).row_bytes(32)));
    expect_weights(kernel, c, key.precision);
  });
}

// The byte of a scale that matters most: sign and exponent. Not `fast`, which may take the smallest for 0.
TEST(Linear, EveryScaleIsRight) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    if (!is_quantised(key.format) || key.precision != Precision::exact) return;
    const FormatInfo& format = info(key.format);
    const bool four_bits = format.row_bytes(32) == 16;
    const int one = !four_bits ? 0x38 : key.format == QuantFormat::int4_g32 ? 0x99 : 0x22;
    const std::int64_t scale_bytes = format.scale_row_bytes(format.block_cols);
    Random random(9);
    LinearCase c(key.format, 32, 256, 32, random);
    for (int row = 0; row < 256; ++row) {
      std::memset(c.w.row(row), one, static_cast<std::size_t>(format.row_bytes(32)));
      for (std::int64_t at = scale_bytes - 1; at < format.scale_row_bytes(32); at += scale_bytes) {
        c.w.scales_of(row)[at] = static_cast<std::byte>(row);
      }
    }
    expect_weights(kernel, c, key.precision);
  });
}

TEST(Linear, DoesNotDependOnThreads) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    Random random(2);
    for (const std::int64_t tokens : {1, 3, 37, 200}) {
      const LinearCase c(key.format, tokens, 67, 1056, random, 100);
      run_kernel(kernel, c.args(key.precision), 1);
      const Floats expected = values_of(*c.y);
      for (const int threads : {2, 3, 5}) {
        run_kernel(kernel, c.args(key.precision), threads);
        EXPECT_TRUE(same_bits(c.y->f32(), expected.data(), c.y->shape.elements())) << tokens << " tokens, " << threads << " threads";
      }
    }
  });
}

// Each row of y of a case, from a call with that row of x alone.
void expect_rows_independent(const Kernel<LinearArgs>& kernel, const LinearArgs& args) {
  const Floats together = values_of(args.y);
  const std::int64_t out = args.w.rows;
  for (std::int64_t token = 0; token < args.x.dim(0); ++token) {
    LinearArgs alone = args;
    alone.x = args.x.rows(token, 1);
    alone.y = args.y.rows(token, 1);
    run_kernel(kernel, alone, 1 + static_cast<int>(token % 3));
    EXPECT_TRUE(same_bits(alone.y.f32(), together.data() + token * out, out)) << "token " << token << " of " << args.x.dim(0);
  }
}

TEST(Linear, ExactDoesNotDependOnTheBatch) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    if (key.precision != Precision::exact) return;
    Random random(3);
    for (const std::int64_t tokens : {2, 3, 4, 5, 6, 37}) {
      const LinearCase c(key.format, tokens, some_rows(random), some_cols(random, key.format), random, some_first_row(random));
      SCOPED_TRACE(describe(c));
      run_kernel(kernel, c.args(key.precision), 2);
      expect_rows_independent(kernel, c.args(key.precision));
    }
  });
}

TEST(Linear, BadTokenStaysInItsRow) {
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  for_each_kernel<LinearArgs>([&](const Kernel<LinearArgs>& kernel, const Key& key) {
    Random random(4);
    for (const std::int64_t tokens : {2, 4, 13}) {
      for (const float bad : kBad) {
        const LinearCase c(key.format, tokens, 9, 96, random);
        run_kernel(kernel, c.args(key.precision), 2);
        const Floats clean = values_of(*c.y);
        c.x->f32()[1 * 96 + 95] = bad;
        run_kernel(kernel, c.args(key.precision), 2);
        for (std::int64_t token = 0; token < tokens; ++token) {
          const float* y = c.y->f32() + token * 9;
          const bool as_it_should = token == 1 ? std::none_of(y, y + 9, [](float value) { return std::isfinite(value); })
                                               : same_bits(y, clean.data() + token * 9, 9);
          EXPECT_TRUE(as_it_should) << "token " << token;
        }
      }
    }
  });
}

// A NaN in the last scale of row 1 reaches the rows that have that scale and no other.
TEST(Linear, NanScaleIsNotHidden) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    if (!is_quantised(key.format)) return;
    const FormatInfo& format = info(key.format);
    const bool is_e4m3 = key.format == QuantFormat::nvfp4;
    Random random(5);
    for (const std::int64_t tokens : {1, 9, 40}) {
      LinearCase c(key.format, tokens, 5, 288, random, 127);
      std::byte* scales = c.w.scales_of(1);
      const std::int64_t scale_bytes = format.scale_row_bytes(format.block_cols);
      std::memset(scales + format.scale_row_bytes(288) - scale_bytes, is_e4m3 ? 0x7f : 0xff, static_cast<std::size_t>(scale_bytes));
      run_kernel(kernel, c.args(key.precision), 1);
      for (std::int64_t i = 0; i < tokens * 5; ++i) EXPECT_EQ(std::isnan(c.y->f32()[i]), c.w.scales_of(i % 5) == scales) << i;
    }
  });
}

TEST(Linear, NanCodeIsNotHidden) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    if (info(key.format).row_bytes(32) != 32) return;  // only eight-bit floats have a NaN
    Random random(10);
    for (const std::int64_t col : {0, 33, 100, 287}) {
      for (const std::int64_t tokens : {1, 9, 40}) {
        LinearCase c(key.format, tokens, 3, 288, random);
        c.w.row(1)[col] = col % 2 == 0 ? std::byte{0x7f} : std::byte{0xff};
        run_kernel(kernel, c.args(key.precision), 1);
        for (std::int64_t i = 0; i < tokens * 3; ++i) EXPECT_EQ(std::isnan(c.y->f32()[i]), i % 3 == 1) << i;
      }
    }
  });
}

TEST(Linear, LongPromptIsCutToBoundTheWorkspace) {
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    const LinearArgs args{.x = {.shape = {100'000, 6144}},
                          .w = {.format = key.format, .rows = 2048, .cols = 6144},
                          .y = {.shape = {100'000, 2048}},
                          .precision = key.precision};
    EXPECT_LE(kernel.workspace_bytes(args, 16), 24 << 20);
  });
  for_each_kernel<LinearArgs>([](const Kernel<LinearArgs>& kernel, const Key& key) {
    if (!kernel.name.ends_with("bf16.avx512bf16") && !kernel.name.ends_with("bf16.avx2")) return;
    Random random(6);
    const LinearCase c(key.format, 1100, 4, 8192, random);  // more than one part
    reference(c.args(key.precision));
    const Floats expected = values_of(*c.y);
    run_kernel(kernel, c.args(key.precision), 2);
    expect_close(*c.y, expected, linear_magnitudes(c), linear_tolerance(key.precision, 8192), 8192);
  });
}

// ---- linear_experts ----

// Routes tokens in one of several ways: spread, all to one expert, only to the last ones, uneven.
ExpertsCase some_experts_case(QuantFormat format, int i, Random& random) {
  const std::int64_t experts = random.one_of<std::int64_t>({8, 9, 16});
  const std::int64_t top_k = 1 + random.below(8);
  const std::int64_t tokens = some_tokens(random);
  const std::int64_t step = 1 + random.below(experts - 1);
  const ExpertsCase::Choose ways[] = {
      [=](std::int64_t token, std::int64_t rank) { return (token * step + rank) % experts; },
      [=](std::int64_t, std::int64_t rank) { return rank; },
      [=](std::int64_t, std::int64_t rank) { return experts - 1 - rank; },
      [=](std::int64_t token, std::int64_t rank) { return token % 5 == 0 ? (token + rank) % experts : rank; },
  };
  const auto rows = i % 2 == 0 ? LinearExpertsArgs::Rows::by_token : LinearExpertsArgs::Rows::by_slot;
  const std::int64_t in = one_width(random, format, {16, 48, 80, 160, 272, 288, 1040, 1056}, {1, 16, 80, 130, 272, 1040});
  return {format, experts, tokens, top_k, std::min<std::int64_t>(some_rows(random), 67), in, rows, ways[i % 4], random};
}

TEST(LinearExperts, MatchesReference) {
  for_each_kernel<LinearExpertsArgs>([](const Kernel<LinearExpertsArgs>& kernel, const Key& key) {
    Random random(11);
    for (int i = 0; i < kCases / 2; ++i) {
      const ExpertsCase c = some_experts_case(key.format, i, random);
      SCOPED_TRACE(c.x->shape.to_string() + " -> " + c.y->shape.to_string());
      const LinearExpertsArgs args = c.args(key.precision);
      reference(args);
      const Floats expected = values_of(*c.y);
      run_kernel(kernel, args, 1 + i % 3);
      expect_close(*c.y, expected, experts_magnitudes(args), linear_tolerance(key.precision, c.experts.front().cols),
                   c.experts.front().cols);
      EXPECT_TRUE(c.y.untouched_around());
    }
  });
}

// As above; an expert with more slots than an instruction has columns, one with a few, others with none.
TEST(LinearExperts, MatchesReferenceOnWholeTiles) {
  for_each_kernel<LinearExpertsArgs>([](const Kernel<LinearExpertsArgs>& kernel, const Key& key) {
    Random random(23);
    const ExpertsCase::Choose uneven = [](std::int64_t token, std::int64_t rank) { return rank == 0 ? 5 : (token * 3 + rank) % 5; };
    for (const std::int64_t cols : {128, 512, 640, 2048, 2176}) {
      for (const std::int64_t tokens : {1, 2, 11}) {
        for (const auto rows : {LinearExpertsArgs::Rows::by_token, LinearExpertsArgs::Rows::by_slot}) {
          const ExpertsCase c(key.format, 9, tokens, 3, random.one_of<std::int64_t>({1, 16, 33}), cols, rows, uneven, random);
          SCOPED_TRACE(c.x->shape.to_string() + " -> " + c.y->shape.to_string());
          const LinearExpertsArgs args = c.args(key.precision);
          reference(args);
          const Floats expected = values_of(*c.y);
          run_kernel(kernel, args, 2);
          expect_close(*c.y, expected, experts_magnitudes(args), linear_tolerance(key.precision, cols), cols);
          EXPECT_TRUE(c.y.untouched_around());
        }
      }
    }
  });
}

// Experts with more slots than a tile has, with about as many, with few, and with none.
TEST(LinearExperts, MatchesReferenceOnManyTokens) {
  for_each_kernel<LinearExpertsArgs>([](const Kernel<LinearExpertsArgs>& kernel, const Key& key) {
    if (key.precision == Precision::exact || !has_matrix_kernels(key.format)) return;
    Random random(25);
    const ExpertsCase::Choose uneven = [](std::int64_t token, std::int64_t rank) {
      return rank == 0 ? 5 : token % 3 == 0 ? 1 : token % 16 == 1 ? 3 : token % 40 == 2 ? 4 : 6;
    };
    for (const std::int64_t cols : {192, 640}) {
      for (const std::int64_t tokens : {24, 200}) {
        for (const auto rows : {LinearExpertsArgs::Rows::by_token, LinearExpertsArgs::Rows::by_slot}) {
          if (tokens == 200 && (cols == 640) == (rows == LinearExpertsArgs::Rows::by_token)) continue;
          const ExpertsCase c(key.format, 8, tokens, 2, tokens == 24 ? 65 : random.one_of<std::int64_t>({1, 15, 17}), cols, rows, uneven,
                              random);
          SCOPED_TRACE(c.x->shape.to_string() + " -> " + c.y->shape.to_string());
          const LinearExpertsArgs args = c.args(key.precision);
          reference(args);
          const Floats expected = values_of(*c.y);
          run_kernel(kernel, args, 2);
          expect_close(*c.y, expected, experts_magnitudes(args), linear_tolerance(key.precision, cols), cols);
          EXPECT_TRUE(c.y.untouched_around());
        }
      }
    }
  });
}

TEST(LinearExperts, DoesNotDependOnThreads) {
  for_each_kernel<LinearExpertsArgs>([](const Kernel<LinearExpertsArgs>& kernel, const Key& key) {
    Random random(12);
    for (int i = 0; i < 8; ++i) {
      const ExpertsCase c = some_experts_case(key.format, i, random);
      run_kernel(kernel, c.args(key.precision), 1);
      const Floats expected = values_of(*c.y);
      for (const int threads : {2, 3}) {
        run_kernel(kernel, c.args(key.precision), threads);
        EXPECT_TRUE(same_bits(c.y->f32(), expected.data(), c.y->shape.elements())) << threads << " threads";
      }
    }
  });
}

// In `exact` a slot gets the bits that `linear` on the same instruction set gives its token alone.
TEST(LinearExperts, ExactDoesNotDependOnTheBatch) {
  for_each_kernel<LinearExpertsArgs>([](const Kernel<LinearExpertsArgs>& kernel, const Key& key) {
    if (key.precision != Precision::exact) return;
    const std::string linear_name = "linear" + std::string(kernel.name.substr(kernel.name.find('.')));
    const Catalogue catalogue = catalogue_under_test();
    const auto& list = catalogue.of<LinearArgs>();
    const auto linear = std::find_if(list.begin(), list.end(), [&](const Kernel<LinearArgs>& k) { return k.name == linear_name; });
    ASSERT_NE(linear, list.end()) << linear_name;
    Random random(13);
    for (int i = 0; i < 8; ++i) {
      const ExpertsCase c = some_experts_case(key.format, i, random);
      const LinearExpertsArgs args = c.args(key.precision);
      run_kernel(kernel, args, 2);
      const OwnedTensor alone(DType::f32, {1, args.y.dim(1)});
      for (std::int64_t slot = 0; slot < args.y.dim(0); slot += 3) {
        run_kernel(*linear, linear_of_slot(args, slot, *alone), 1);
        EXPECT_TRUE(same_bits(alone->f32(), args.y.rows(slot, 1).f32(), args.y.dim(1))) << "slot " << slot;
      }
    }
  });
}

TEST(LinearExperts, NoTokensToAnyExpert) {
  for_each_kernel<LinearExpertsArgs>([](const Kernel<LinearExpertsArgs>& kernel, const Key& key) {
    Random random(14);
    const ExpertsCase c(
        key.format, 4, 2, 1, 5, 32, LinearExpertsArgs::Rows::by_token, [](std::int64_t token, std::int64_t) { return token; }, random);
    for (int i = 0; i < 5; ++i) c.begin_tensor->i32()[i] = 0;
    const Floats before = values_of(*c.y);
    run_kernel(kernel, c.args(key.precision), 2);
    EXPECT_TRUE(same_bits(c.y->f32(), before.data(), 2 * 5));
  });
}

TEST(LinearExperts, LongPromptIsCutToBoundTheWorkspace) {
  for_each_kernel<LinearExpertsArgs>([](const Kernel<LinearExpertsArgs>& kernel, const Key& key) {
    if (!kernel.name.ends_with("bf16.avx512bf16") && !kernel.name.ends_with("bf16.avx2")) return;
    Random random(15);
    for (const auto rows : {LinearExpertsArgs::Rows::by_token, LinearExpertsArgs::Rows::by_slot}) {
      const ExpertsCase c(
          key.format, 3, 1100, 2, 3, 8192, rows, [](std::int64_t token, std::int64_t rank) { return (token + rank) % 2; }, random);
      const LinearExpertsArgs args = c.args(key.precision);
      EXPECT_LE(kernel.workspace_bytes(args, 2), 20 << 20);
      reference(args);
      const Floats expected = values_of(*c.y);
      run_kernel(kernel, args, 2);
      const Floats magnitudes(expected.size(), 8192.0f / 4);  // the mean product of two numbers in [0, 1)
      expect_close(*c.y, expected, magnitudes, linear_tolerance(key.precision, 8192), 8192);
    }
  });
}

// ---- latent_query, latent_value ----

LatentShape some_latent_shape(QuantFormat format, Random& random) {
  return {.tokens = some_tokens(random),
          .heads = 1 + random.below(4),
          .nope = random.one_of<std::int64_t>({1, 3, 4, 5, 16, 33, 128, 192}),
          .v = random.one_of<std::int64_t>({1, 4, 31, 64, 67, 128, 256}),
          .rope = random.one_of<std::int64_t>({0, 2, 64}),
          .latent = one_width(random, format, {16, 32, 48, 64, 80, 96, 112, 160, 512}, {1, 7, 16, 33, 64, 80, 100, 130, 512})};
}

template <class Args>
class Latent : public testing::Test {};
using LatentOps = testing::Types<LatentQueryArgs, LatentValueArgs>;
TYPED_TEST_SUITE(Latent, LatentOps);

template <class Args>
void expect_latent_matches(const Kernel<Args>& kernel, const Key& key, const LatentShape& shape, int threads, Random& random) {
  const LatentCase c(key.format, shape, random);
  const Args args = c.args(static_cast<Args*>(nullptr), key.precision);
  SCOPED_TRACE(LatentCase::input_of(args).shape.to_string() + " -> " + args.y.shape.to_string());
  reference(args);
  const Floats expected = values_of(args.y);
  run_kernel(kernel, args, threads);
  const std::int64_t terms = c.terms(static_cast<Args*>(nullptr));
  expect_close(args.y, expected, c.template magnitudes<Args>(), linear_tolerance(key.precision, terms), terms);
  EXPECT_TRUE(c.q_out.untouched_around() && c.value.untouched_around());
}

TYPED_TEST(Latent, MatchesReference) {
  for_each_kernel<TypeParam>([](const Kernel<TypeParam>& kernel, const Key& key) {
    Random random(21);
    for (int i = 0; i < kCases; ++i) expect_latent_matches(kernel, key, some_latent_shape(key.format, random), 1 + i % 3, random);
  });
}

TYPED_TEST(Latent, ThePublishedShapes) {
  for_each_kernel<TypeParam>([](const Kernel<TypeParam>& kernel, const Key& key) {
    Random random(23);
    for (const std::int64_t tokens : {1, 8, 9, 33}) {
      expect_latent_matches(kernel, key, {.tokens = tokens, .heads = 3, .nope = 192, .v = 256, .rope = 64, .latent = 512}, 2, random);
      expect_latent_matches(kernel, key, {.tokens = tokens, .heads = 2, .nope = 128, .v = 128, .rope = 64, .latent = 512}, 2, random);
    }
  });
}

TYPED_TEST(Latent, DoesNotDependOnThreadsOrTheBatch) {
  for_each_kernel<TypeParam>([](const Kernel<TypeParam>& kernel, const Key& key) {
    Random random(22);
    for (const std::int64_t tokens : {1, 4, 7, 37}) {
      LatentShape shape = some_latent_shape(key.format, random);
      shape.tokens = tokens;
      const LatentCase c(key.format, shape, random);
      const TypeParam args = c.args(static_cast<TypeParam*>(nullptr), key.precision);
      run_kernel(kernel, args, 1);
      const Floats expected = values_of(args.y);
      for (const int threads : {2, 3}) {
        run_kernel(kernel, args, threads);
        EXPECT_TRUE(same_bits(args.y.f32(), expected.data(), args.y.shape.elements())) << threads << " threads";
      }
      if (key.precision != Precision::exact) continue;
      const std::int64_t row = args.y.shape.elements() / tokens;
      for (std::int64_t token = 0; token < tokens; ++token) {
        TypeParam alone = args;
        LatentCase::input_of(alone) = LatentCase::input_of(args).rows(token, 1);
        alone.y = args.y.rows(token, 1);
        run_kernel(kernel, alone, 2);
        EXPECT_TRUE(same_bits(alone.y.f32(), expected.data() + token * row, row)) << "token " << token << " of " << tokens;
      }
    }
  });
}

}  // namespace
}  // namespace reckoner
