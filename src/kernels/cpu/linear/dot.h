// The core that linear, linear_experts and latent_value share: dot products of rows of x with rows of a weight that is read as it lies in
// the checkpoint. One DotCore an instruction set, precision and format; dot_driver.h spreads the work over threads.
//
// Lanes of a vector run along the columns, in the order that decoding the format yields; x is packed into that order once a call. A sum
// is formed in one vector accumulator within a block of columns, then across its lanes by a fixed tree, then over blocks in order: for
// float x the same for few() and many(), so that a result does not depend on what else is in the batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/weight.h"

namespace reckoner {

// Some rows of one weight against some rows of packed x. Plain pointers: this crosses into code for another instruction set.
struct DotTask {
  const std::byte* data;         // [rows, cols] in the core's format
  const std::byte* scales;       // [grid rows, blocks] of the whole matrix, where the format has them
  std::int64_t first_row;        // of that matrix: which of its rows is row 0 here; a block of scales may cover several rows
  std::int64_t row_bytes;        // from one row to the next
  std::int64_t scale_row_bytes;  // from one row of the grid to the next
  float scale;                   // of the whole tensor
  std::int64_t rows;             // at most kDotRows
  std::int64_t cols;             // at least 1
  const std::byte* x;            // [*, padded cols] packed
  std::int64_t x_stride_bytes;   // from one row to the next
  const std::int32_t* x_index;   // [tokens]: the row of x that each token reads; nullptr: token t reads row t
  std::int64_t tokens;           // rows of y
  float* y;                      // y[token * y_stride + row]
  std::int64_t y_stride;
};

inline constexpr std::int64_t kDotBlockSide = 128;  // rows and columns that share a scale in fp8_block
inline constexpr std::int64_t kDotRows = 64;        // rows of a weight that one task may have: with a block of columns they fit the panel

// One row of a weight.
struct WeightRow {
  const std::byte* data;    // [cols]
  const std::byte* scales;  // [blocks]
};

struct DotCore {
  std::int64_t step_cols;      // a packed row is padded with zeros to a multiple of this
  std::int64_t element_bytes;  // of packed x
  std::int64_t panel_bytes;    // scratch of many(), aligned to 64
  std::int64_t few_tokens;     // up to here few() is the faster one
  void (*pack)(const float* x /* [cols] */, std::int64_t cols, std::byte* packed /* [padded cols], aligned to 64 */);
  void (*few)(const DotTask& task);                     // decodes in registers, once for every few tokens
  void (*many)(const DotTask& task, std::byte* panel);  // decodes a block of columns into the panel, once for all tokens
};

namespace avx2 {
extern const DotCore kDotF32, kDotF16, kDotBf16, kDotNvfp4, kDotMxfp4, kDotInt4, kDotFp8Block, kDotFp8Channel, kDotMxfp8;
}
namespace avx512 {
extern const DotCore kDotF32, kDotF16, kDotBf16, kDotNvfp4, kDotMxfp4, kDotInt4, kDotFp8Block, kDotFp8Channel, kDotMxfp8;
}
// x rounded to BF16.
namespace avx512bf16 {
extern const DotCore kDotBf16, kDotNvfp4, kDotMxfp4, kDotInt4, kDotFp8Block, kDotFp8Channel, kDotMxfp8;
}

}  // namespace reckoner
