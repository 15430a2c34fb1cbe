// A warp's chunks of sixteen rows on their way into registers. What bounds kernels for few tokens on four-bit weights is the number of
// instructions, so that addresses are kept, not made.
#pragma once

#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/linear/few_rows.cuh"

namespace reckoner::cuda {

// Rows g and g + 8 of a tile, with lane = 4 g + t, and the scales of row lane % 16.
struct RowPointers {
  const std::byte *low, *high, *scales;
};

template <class C, int kDepth>
class WeightRing {
 public:
  // `stages`: the warp's own.
  __device__ explicit WeightRing(Stage<C> (&stages)[kDepth])
      : memory_(reinterpret_cast<const unsigned char*>(stages)), to_(shared_address(stages)), lane_(static_cast<int>(threadIdx.x) % 32) {}

  // Asks for the chunk at the pointers and moves them on by `step` chunks. Each call is to be followed by commit_copies().
  __device__ void fetch(RowPointers& at, int step) {
    const std::uint32_t to = to_ + put_ + lane_ * 16;
#pragma unroll
    for (int plane = 0; plane < C::kPlanes; ++plane) {
      copy_async_to(to + plane * kPlaneBytes, at.low + plane * 64);
      copy_async_to(to + plane * kPlaneBytes + kPlaneBytes / 2, at.high + plane * 64);
    }
    if constexpr (C::kScaleBytes > 0) {
      if (lane_ < 16) copy_few_async_to<C::kScaleBytes>(to_ + put_ + kScalesAt + lane_ * C::kScaleBytes, at.scales);
      at.scales += step * C::kScaleBytes;
    }
    at.low += step * C::kPlanes * 64;
    at.high += step * C::kPlanes * 64;
    put_ = put_ == (kDepth - 1) * kStageBytes ? 0 : put_ + kStageBytes;
  }

  // The first fetches, of min(count, kDepth) chunks `kStep` apart, each with its commit_copies(); returns how many. Nothing but constants
  // differs between them, so that they are under way at once.
  template <int kStep>
  __device__ int start(RowPointers& at, int count) {
    const std::uint32_t to = to_ + lane_ * 16, scales_to = to_ + kScalesAt + lane_ * C::kScaleBytes;
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      if (i >= count) break;
#pragma unroll
      for (int plane = 0; plane < C::kPlanes; ++plane) {
        copy_async_to(to + i * kStageBytes + plane * kPlaneBytes, at.low + (i * kStep * C::kPlanes + plane) * 64);
        copy_async_to(to + i * kStageBytes + plane * kPlaneBytes + kPlaneBytes / 2, at.high + (i * kStep * C::kPlanes + plane) * 64);
      }
      if constexpr (C::kScaleBytes > 0) {
        if (lane_ < 16) copy_few_async_to<C::kScaleBytes>(scales_to + i * kStageBytes, at.scales + i * kStep * C::kScaleBytes);
      }
      commit_copies();
    }
    const int begun = count < kDepth ? count : kDepth;
    at.low += begun * (kStep * C::kPlanes * 64), at.high += begun * (kStep * C::kPlanes * 64);
    if constexpr (C::kScaleBytes > 0) at.scales += begun * (kStep * C::kScaleBytes);
    put_ = begun == kDepth ? 0 : begun * kStageBytes;
    return begun;
  }

  // The oldest chunk, once it is there: whoever calls has waited for the copies, and the warp meets before it fetches again.
  __device__ void take(C (&now)[2], const std::uint32_t* scale_pairs) {
    const unsigned char* const from = memory_ + get_;
    const int g = lane_ / 4, t = lane_ % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int plane = 0; plane < C::kPlanes; ++plane)
        now[half].codes[plane] = *reinterpret_cast<const uint4*>(from + plane * kPlaneBytes + half * (kPlaneBytes / 2) + lane_ * 16);
      now[half].take_scales(reinterpret_cast<const std::byte*>(from + kScalesAt + (g + half * 8) * C::kScaleBytes), t, scale_pairs);
    }
    get_ = get_ == (kDepth - 1) * kStageBytes ? 0 : get_ + kStageBytes;
  }

 private:
  static constexpr int kPlaneBytes = 1024, kScalesAt = C::kPlanes * kPlaneBytes, kStageBytes = sizeof(Stage<C>);
  static_assert(kTiles == 1);

  const unsigned char* memory_;
  std::uint32_t to_;
  int lane_, put_ = 0, get_ = 0;
};

}  // namespace reckoner::cuda
