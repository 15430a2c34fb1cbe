// A warp's sixteen rows on their way into registers as weight_ring.cuh has them, by whole lines: 128 bytes of a row at a time, eight lanes
// each. Half lines take the first cache as long as whole ones, and so do the few bytes of a row's scales.
#pragma once

#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/linear/few_rows.cuh"

namespace reckoner::cuda {

// Of rows lane / 8 + 4 j the lane's sixteen bytes (lane % 8), and the scales of row lane % 16.
struct LinePointers {
  const std::byte *rows[4], *scales;
};

template <class C, int kDepth>
class LineRing {
 public:
  static constexpr int kChunks = 2 / C::kPlanes;  // a line
  static constexpr int kScaleBytes = C::kScaleBytes * kChunks;
  static constexpr int kScalesAt = 16 * 128, kBytes = kScalesAt + 16 * kScaleBytes;  // a line of all rows

  // `memory`: the warp's own, of kDepth * kBytes.
  __device__ explicit LineRing(void* memory) : lane_(static_cast<int>(threadIdx.x) % 32), memory_(static_cast<unsigned char*>(memory)) {
    const int row = lane_ / 8, piece = lane_ % 8;
    to_ = shared_address(memory) + row * 128 + place(row, piece) * 16;
    scales_to_ = shared_address(memory) + kScalesAt + lane_ * kScaleBytes;
    from_ = lane_ / 4 * 128 + place(lane_ / 4, lane_ % 4) * 16;
  }

  // The first fetches, of min(count, kDepth) lines `kStep` apart, each with its commit_copies(); returns how many. Nothing but constants
  // differs between them, so that they are under way at once.
  template <int kStep>
  __device__ int start(LinePointers& at, int count) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      if (i >= count) break;
      copy(at, i * kBytes, i * kStep);
      commit_copies();
    }
    const int begun = count < kDepth ? count : kDepth;
    move(at, begun * kStep);
    put_ = begun == kDepth ? 0 : begun * kBytes;
    return begun;
  }
  // Asks for the line at the pointers and moves them on by `step` lines. Each call is to be followed by commit_copies().
  __device__ void fetch(LinePointers& at, int step) {
    copy(at, put_, 0);
    move(at, step);
    put_ = put_ == (kDepth - 1) * kBytes ? 0 : put_ + kBytes;
  }

  // A chunk of the oldest line, once that is there: whoever calls has waited for the copies. The warp meets before it fetches again, and
  // calls next() for each line.
  __device__ void take(int chunk, C (&now)[2], const std::uint32_t* scale_pairs) const {
    const unsigned char* const line = memory_ + get_;
    const int g = lane_ / 4, t = lane_ % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int plane = 0; plane < C::kPlanes; ++plane)
        now[half].codes[plane] = *reinterpret_cast<const uint4*>(line + half * 1024 + (from_ ^ (chunk + plane) * 64));
      now[half].take_scales(reinterpret_cast<const std::byte*>(line + kScalesAt + (g + half * 8) * kScaleBytes + chunk * C::kScaleBytes), t,
                            scale_pairs);
    }
  }
  __device__ void next() { get_ = get_ == (kDepth - 1) * kBytes ? 0 : get_ + kBytes; }

 private:
  // So that what a warp reads at once is in different banks.
  __device__ static int place(int row, int piece) { return piece ^ (row & 1) << 2; }
  __device__ void copy(const LinePointers& at, int put, int lines) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) copy_async_to(to_ + put + j * 512, at.rows[j] + lines * 128);
    if constexpr (kScaleBytes > 0) {
      if (lane_ < 16) copy_few_or_many(scales_to_ + put, at.scales + lines * kScaleBytes);
    }
  }
  __device__ static void copy_few_or_many(std::uint32_t to, const std::byte* from) {
    if constexpr (kScaleBytes == 16) {
      copy_async_to(to, from);
    } else {
      copy_few_async_to<kScaleBytes>(to, from);
    }
  }
  __device__ static void move(LinePointers& at, int lines) {
#pragma unroll
    for (const std::byte*& row : at.rows) row += lines * 128;
    if constexpr (kScaleBytes > 0) at.scales += lines * kScaleBytes;
  }

  int lane_, from_ = 0, put_ = 0, get_ = 0;
  unsigned char* memory_;
  std::uint32_t to_ = 0, scales_to_ = 0;
};

}  // namespace reckoner::cuda
