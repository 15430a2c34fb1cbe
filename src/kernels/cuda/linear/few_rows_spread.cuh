// A launch of the kernel in few_rows_spread.cu: rows of up to four weights that share their input, spread over the device.
#pragma once

#include "kernels/cuda/common/weights.cuh"
#include "ops/kernel.h"

namespace reckoner::cuda {

inline constexpr int kMostParts = 4;

struct SpreadPart {
  DeviceWeight w;
  float* y;       // [tokens, w.rows]
  int rows;       // a block
  int end_block;  // of the grid; its first is where the part before ends
};

struct Spread {
  SpreadPart parts[kMostParts];  // those in float last
  int count;
  int rounded_parts;     // how many of them multiply rounded activations; the others do it in float
  const float* x;        // [tokens, cols]
  const uint4* rounded;  // [tokens, cols / 8] pieces of x that was rounded before, in the order of slot_of_piece(), or nullptr
  const float* norm;     // [cols], or nullptr: then of the root mean square of x too
  float epsilon;
  int tokens;
  int share;  // warps that share the columns of a tile
};

// few_rows_dots.cu: one or two tokens, BF16; parts in float are like any other there. Fills in which rows are whose.
bool fits_linear_dots(Precision precision, QuantFormat format, std::int64_t tokens, std::int64_t cols);
void run_linear_dots(Spread& s, int multiprocessors, Lane& lane);

}  // namespace reckoner::cuda
