// What tests of ops with a matrix have in common: sizes to draw from, and how close a result must be.
#pragma once

#include <cstring>

#include "cases.h"
#include "diagnose/admission/linear_cases.h"

namespace reckoner {

inline bool is_odd_width(QuantFormat format) { return info(format).cols_multiple == 1; }

// One of `blocks` that the format's blocks divide, or where the format has none to be divided one of `any`.
inline std::int64_t one_width(Random& random, QuantFormat format, const std::vector<std::int64_t>& blocks,
                              const std::vector<std::int64_t>& any) {
  std::int64_t cols = random.one_of(is_odd_width(format) ? any : blocks);
  while (cols % info(format).cols_multiple != 0) cols = random.one_of(blocks);
  return cols;
}

inline std::int64_t some_cols(Random& random, QuantFormat format) {
  return one_width(random, format, {16,  32,  48,  64,  80,  96,  112,  128,  160,  224,  240,  256,
                                    272, 288, 384, 768, 784, 800, 1040, 1056, 1536, 2064, 2080, 6144 + 32},
                   {1, 2, 15, 16, 17, 31, 33, 48, 63, 64, 65, 80, 127, 129, 255, 257, 576, 767, 769, 1040, 1535, 1537, 2064, 6144 + 16});
}

inline std::int64_t some_rows(Random& random) {
  return random.one_of<std::int64_t>({1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 63, 64, 65, 67, 130});
}

// Rows of a larger matrix that come before a case's own: blocks of scales that cover several rows are then cut anywhere.
inline std::int64_t some_first_row(Random& random) { return random.one_of<std::int64_t>({0, 0, 1, 64, 100, 127}); }

inline std::int64_t some_tokens(Random& random) { return random.one_of<std::int64_t>({1, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 18, 37, 40}); }

// Formats that tiles of many tokens have kernels of their own for; the reference takes long for so many.
inline bool has_matrix_kernels(QuantFormat format) {
  using F = QuantFormat;
  return format == F::bf16 || format == F::nvfp4 || format == F::fp8_channel || format == F::fp8_block;
}

inline bool same_bits(const float* a, const float* b, std::int64_t count) {
  return std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(float)) == 0;
}

// Fails unless each |found - expected| <= tolerance * the sum of magnitudes behind it, plus what denormals may lose.
inline void expect_close(const Tensor& found, const Floats& expected, const Floats& magnitudes, double tolerance, std::int64_t terms) {
  const double slack = static_cast<double>(terms) * 0x1p-126;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(static_cast<double>(found.f32()[i]) - expected[i]);
    // Written so that a NaN fails.
    if (!(error <= tolerance * magnitudes[i] + slack)) {
      ADD_FAILURE() << "element " << i << " of " << found.shape.to_string() << ": found " << found.f32()[i] << ", expected " << expected[i]
                    << ", allowed error " << tolerance * magnitudes[i] + slack;
      return;
    }
  }
}

}  // namespace reckoner
