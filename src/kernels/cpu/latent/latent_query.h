// The core of latent_query: a head's queries times its rows of kv_b. One QueryCore an instruction set and format.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reckoner {

// One head's W_UK, columns [first_col, first_col + cols), for some tokens. Plain pointers: this crosses into code for another instruction
// set.
struct QueryTask {
  const std::byte* data;         // [nope, latent] in the core's format
  const std::byte* scales;       // [grid rows, blocks] of kv_b, where the format has them
  std::int64_t first_row;        // of kv_b: which of its rows is row 0 here; a block of scales may cover several rows
  std::int64_t row_bytes;        // from one row to the next
  std::int64_t scale_row_bytes;  // from one row of the grid to the next
  float scale;                   // of the whole tensor
  std::int64_t nope;
  std::int64_t first_col;
  std::int64_t cols;
  const float* q;  // q[token * q_stride + p], p < nope
  std::int64_t q_stride;
  float* y;  // y[token * y_stride + col], col < latent
  std::int64_t y_stride;
  std::int64_t tokens;
};

inline constexpr std::int64_t kQueryCols = 64;  // columns that many() takes at a time: first_col is a multiple, cols at most that many

struct QueryCore {
  std::int64_t few_tokens;                            // up to here few() is the faster one; it takes any number of columns
  void (*few)(const QueryTask& task);                 // goes along the rows, as they lie in memory; sums stay in y
  void (*many)(const QueryTask& task, float* panel);  // panel: [nope, kQueryCols], aligned to 64
};

namespace avx2 {
extern const QueryCore kQueryF32, kQueryF16, kQueryBf16, kQueryNvfp4, kQueryMxfp4, kQueryInt4, kQueryFp8Block, kQueryFp8Channel,
    kQueryMxfp8;
}
namespace avx512 {
extern const QueryCore kQueryF32, kQueryF16, kQueryBf16, kQueryNvfp4, kQueryMxfp4, kQueryInt4, kQueryFp8Block, kQueryFp8Channel,
    kQueryMxfp8;
}

}  // namespace reckoner
