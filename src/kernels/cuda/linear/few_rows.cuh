// What the kernels for few tokens share: a lane's part of its token's row, and chunks of weights on their way into registers.
#pragma once

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

}  // namespace reckoner::cuda
