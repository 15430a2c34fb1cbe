// The part of a linear layer that one warp computes, in float: a few rows of the weight times a few tokens.
#pragma once

#include "kernels/cuda/common/weights.cuh"

namespace reckoner::cuda {

inline constexpr int kTileRows = 4;    // of the weight, a warp
inline constexpr int kTileTokens = 4;  // at most
inline constexpr int kTileWarps = 4;   // a block

// y[t][row] for the rows [first_row, first_row + kTileRows) that exist and t < count. x[t] must be readable for all t < kTokens. A lane
// takes every 32nd piece of eight columns, then the lanes' sums are added as a tree: one order, whatever kTokens is.
template <QuantFormat kFormat, int kTokens>
__device__ void dot_tile(const DeviceWeight& w, std::int64_t first_row, std::int64_t end_row, const float* const (&x)[kTokens],
                         float* const (&y)[kTokens], int count) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sums[kTileRows][kTokens] = {};
  for (std::int64_t first = lane * 8; first < w.cols; first += 256) {
    float values[kTokens][8];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (w.cols % 8 == 0) {
        const float4 low = *reinterpret_cast<const float4*>(x[t] + first), high = *reinterpret_cast<const float4*>(x[t] + first + 4);
        values[t][0] = low.x, values[t][1] = low.y, values[t][2] = low.z, values[t][3] = low.w;
        values[t][4] = high.x, values[t][5] = high.y, values[t][6] = high.z, values[t][7] = high.w;
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) values[t][i] = first + i < w.cols ? x[t][first + i] : 0.0f;
      }
    }
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      float weights[8];
      load_eight<kFormat>(w, min(static_cast<long long>(first_row + r), static_cast<long long>(end_row - 1)), first, weights);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[r][t] = fmaf(weights[i], values[t][i], sums[r][t]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float sum = warp_sum(sums[r][t]);
      if (lane == 0 && t < count && first_row + r < end_row) y[t][first_row + r] = sum;
    }
  }
}

}  // namespace reckoner::cuda
