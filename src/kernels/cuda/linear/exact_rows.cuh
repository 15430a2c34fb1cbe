// A few rows of a weight that is not quantised times up to eight tokens, in float, by 256 threads: each takes every 256th piece of eight
// columns, a warp adds its sums as a tree, and the warps' are added in order. One order, whatever kRows and kTokens are.
#pragma once

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/weights.cuh"

namespace reckoner::cuda {

inline constexpr int kExactThreads = 256;
inline constexpr int kExactWarps = kExactThreads / 32;

// Eight neighbouring elements of a row, as they are stored.
template <QuantFormat kFormat>
struct PlainEight {
  static constexpr int kBytes = kFormat == QuantFormat::f32 ? 4 : 2;
  uint4 words[kBytes / 2];

  __device__ void load(const std::byte* row, int piece) {
#pragma unroll
    for (int i = 0; i < kBytes / 2; ++i) words[i] = load_once(reinterpret_cast<const uint4*>(row) + piece * (kBytes / 2) + i);
  }
  __device__ void clear() {
#pragma unroll
    for (uint4& word : words) word = make_uint4(0, 0, 0, 0);
  }
  __device__ void values(float (&out)[8]) const {
#pragma unroll
    for (int i = 0; i < kBytes / 2; ++i) {
      const std::uint32_t four[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if constexpr (kFormat == QuantFormat::f32) out[i * 4 + k] = __uint_as_float(four[k]);
        if constexpr (kFormat == QuantFormat::f16)
          out[2 * k] = half_to_float(four[k] & 0xffffu), out[2 * k + 1] = half_to_float(four[k] >> 16);
        if constexpr (kFormat == QuantFormat::bf16)
          out[2 * k] = bf16_to_float(four[k] & 0xffffu), out[2 * k + 1] = __uint_as_float(four[k] & 0xffff0000u);
      }
    }
  }
};

// y[t][row] for the rows [first_row, first_row + kRows) that exist, of `tokens` <= kTokens tokens whose rows begin at `x`. All threads call
// it; kAhead: pieces of a thread that are under way. Waits for the kernels ahead once the first weights are on their way.
template <QuantFormat kFormat, int kRows, int kTokens, int kAhead = 3>
__device__ void exact_rows(const DeviceWeight& w, int first_row, const float* x, int tokens, float (&scratch)[kExactWarps][kRows * kTokens],
                           float* y) {
  const int pieces = static_cast<int>(w.cols / 8), rows = static_cast<int>(w.rows), thread = static_cast<int>(threadIdx.x);
  PlainEight<kFormat> codes[kAhead][kRows];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int piece = first + i * kExactThreads;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        codes[i][r].clear();
        if (piece < pieces) codes[i][r].load(w.data + min(first_row + r, rows - 1) * w.row_bytes, piece);
      }
    }
  };
  load(thread);
  wait_for_previous();
  let_next_begin();
  float sums[kRows][kTokens] = {};
  for (int first = thread; first < pieces; first += kAhead * kExactThreads) {
    if (first != thread) load(first);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int piece = first + i * kExactThreads;
      float values[kTokens][8];
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        // Tokens that are not there are the last once more: no branch, so that all are under way at a time.
        const auto* const at = reinterpret_cast<const float4*>(x + min(t, tokens - 1) * w.cols) + piece * 2;
        const bool there = piece < pieces;
        const float4 low = there ? at[0] : make_float4(0, 0, 0, 0), high = there ? at[1] : make_float4(0, 0, 0, 0);
        values[t][0] = low.x, values[t][1] = low.y, values[t][2] = low.z, values[t][3] = low.w;
        values[t][4] = high.x, values[t][5] = high.y, values[t][6] = high.z, values[t][7] = high.w;
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float weights[8];
        codes[i][r].values(weights);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
#pragma unroll
          for (int k = 0; k < 8; ++k) sums[r][t] = fmaf(weights[k], values[t][k], sums[r][t]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float sum = warp_sum(sums[r][t]);
      if (thread % 32 == 0) scratch[thread / 32][r * kTokens + t] = sum;
    }
  }
  __syncthreads();
  if (thread < kRows * kTokens) {
    const int row = first_row + thread / kTokens, token = thread % kTokens;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kExactWarps; ++warp) sum += scratch[warp][thread];
    if (row < rows && token < tokens) y[token * w.rows + row] = sum * w.scale;
  }
}

}  // namespace reckoner::cuda
