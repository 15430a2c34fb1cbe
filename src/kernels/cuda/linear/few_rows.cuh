// What the kernels for few tokens share: a lane's part of its token's row, and chunks of weights on their way into registers.
#pragma once

#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/linear/chunk.cuh"

namespace reckoner::cuda {

inline constexpr int kTiles = 1;   // of sixteen rows, a block: with two, fewer warps fit and it was slower
inline constexpr int kTokens = 8;  // of an instruction

// A lane's columns of its token (lane / 4): zeros without one. `fast`: rounded already, where `x` lies as uint4 pieces.
template <class C, int kParts>
struct TokenColumns {
  float4 values[C::kUnits][2];
  __device__ void load(const void* x, int chunk, int t) {
#pragma unroll
    for (int unit = 0; unit < C::kUnits; ++unit) {
      values[unit][0] = values[unit][1] = make_float4(0, 0, 0, 0);
      if (x == nullptr) continue;
      const auto* at = reinterpret_cast<const float4*>(static_cast<const float*>(x) + chunk * C::kColumns + C::column(unit, t));
      values[unit][0] = at[0], values[unit][1] = at[1];
    }
  }
  __device__ void pairs(int unit, std::uint32_t (&out)[kParts][4]) const {
    const float4 low = values[unit][0], high = values[unit][1];
    const float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t parts[kParts];
      split_pair<kParts>(all[C::first(i)], all[C::second(i)], parts);
#pragma unroll
      for (int part = 0; part < kParts; ++part) out[part][i] = parts[part];
    }
  }
};
template <class C>
struct TokenColumns<C, 1> {
  uint4 pieces[C::kUnits];
  __device__ void load(const void* x, int chunk, int t) {
#pragma unroll
    for (int unit = 0; unit < C::kUnits; ++unit) {
      pieces[unit] = make_uint4(0, 0, 0, 0);
      if (x != nullptr) pieces[unit] = static_cast<const uint4*>(x)[(chunk * C::kColumns + C::column(unit, t)) / 8];
    }
  }
  __device__ void pairs(int unit, std::uint32_t (&out)[1][4]) const {
    out[0][0] = pieces[unit].x, out[0][1] = pieces[unit].y, out[0][2] = pieces[unit].z, out[0][3] = pieces[unit].w;
  }
};

// Chunks of a warp's rows on their way into registers: sixteen rows a tile.
template <class C>
struct Stage {
  uint4 codes[kTiles][C::kPlanes][16][4];
  std::byte scales[kTiles][16][C::kScaleBytes > 0 ? C::kScaleBytes : 1];
};

// This lane's part of rows g and g + 8 of a stage, with lane = 4 g + t; `bad` keeps which of them had a code that is NaN.
template <class C>
__device__ __forceinline__ void take_rows(const Stage<C>& stage, const std::uint32_t* scale_pairs, C (&now)[2], bool (&bad)[2]) {
  static_assert(kTiles == 1);
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int plane = 0; plane < C::kPlanes; ++plane) now[half].codes[plane] = stage.codes[0][plane][g + half * 8][t];
    now[half].take_scales(stage.scales[0][g + half * 8], t, scale_pairs);
    bad[half] |= now[half].is_bad();
  }
}

// Asks for this lane's part of a chunk: of rows g and g + 8 from `low` and `high` on, and of lane % 16 the scales. commit_copies() is to
// follow.
template <class C>
__device__ __forceinline__ void fetch_rows(Stage<C>& stage, const std::byte* low, const std::byte* high, const std::byte* scales,
                                           int chunk) {
  static_assert(kTiles == 1);
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int plane = 0; plane < C::kPlanes; ++plane) {
    const int at = (chunk * C::kPlanes + plane) * 64;
    copy_async(&stage.codes[0][plane][g][t], low + at, true);
    copy_async(&stage.codes[0][plane][g + 8][t], high + at, true);
  }
  if constexpr (C::kScaleBytes > 0) {
    if (lane < 16) copy_few_async<C::kScaleBytes>(stage.scales[0][lane], scales + chunk * C::kScaleBytes);
  }
}

// Sixteen rows times a chunk of columns, added to the sums (of formats with a scale a chunk, scaled).
template <class C>
__device__ __forceinline__ void multiply_chunk(const C (&now)[2], const uint4 (&columns)[C::kUnits], float (&sums)[4]) {
  float chunk_sums[4] = {};
  float(&into)[4] = C::kScaled ? chunk_sums : sums;
#pragma unroll
  for (int unit = 0; unit < C::kUnits; ++unit) {
    std::uint32_t low[4], high[4];
    now[0].pairs(unit, low);
    now[1].pairs(unit, high);
    mma_bf16(into, low[0], high[0], low[1], high[1], columns[unit].x, columns[unit].y);
    mma_bf16(into, low[2], high[2], low[3], high[3], columns[unit].z, columns[unit].w);
  }
  if constexpr (C::kScaled) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = fmaf(now[i / 2].scale, chunk_sums[i], sums[i]);
  }
}

// The same, where the sums of every second instruction stand apart, so that they need not wait for each other.
template <class C>
__device__ __forceinline__ void multiply_chunk(const C (&now)[2], const uint4 (&columns)[C::kUnits], float (&sums)[2][4]) {
  float chunk_sums[2][4] = {};
  float(&into)[2][4] = C::kScaled ? chunk_sums : sums;
#pragma unroll
  for (int unit = 0; unit < C::kUnits; ++unit) {
    std::uint32_t low[4], high[4];
    now[0].pairs(unit, low);
    now[1].pairs(unit, high);
    mma_bf16(into[0], low[0], high[0], low[1], high[1], columns[unit].x, columns[unit].y);
    mma_bf16(into[1], low[2], high[2], low[3], high[3], columns[unit].z, columns[unit].w);
  }
  if constexpr (C::kScaled) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[0][i] = fmaf(now[i / 2].scale, chunk_sums[0][i] + chunk_sums[1][i], sums[0][i]);
  }
}

// A row with a code that is NaN is NaN. All lanes call it.
__device__ __forceinline__ void spoil_bad_rows(const bool (&bad)[2], float (&sums)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const unsigned quad = __ballot_sync(kAllLanes, bad[half]) >> (threadIdx.x % 32 & ~3u) & 15u;
    if (quad != 0) sums[2 * half] = sums[2 * half + 1] = __uint_as_float(0x7fc00000u);
  }
}
// Of sums that stand apart: all of them, in sums[0].
__device__ __forceinline__ void finish_sums(const bool (&bad)[2], float (&sums)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[0][i] += sums[1][i];
  spoil_bad_rows(bad, sums[0]);
}

}  // namespace reckoner::cuda
