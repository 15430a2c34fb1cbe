// The expert tiles of a launch, in order, and how a stream of weights walks through its share of them: found on the device, so that a
// launch depends on shapes only.
#pragma once

#include "kernels/cuda/linear/expert_tiles.cuh"

namespace reckoner::cuda {

template <int kThreads, int kMost>
struct ExpertList {
  ExpertTile tiles[kMost];
  int warp_totals[kThreads / 32];
};

// Each expert's slots are cut into tiles of `size`; lists those tiles [from, to) that `range(all tiles)` wants (int2), at most kMost, at
// list.tiles[0] and on; returns the range. All threads call it; the list is complete behind the next barrier of the caller.
template <int kThreads, int kMost, class Range>
__device__ int2 list_expert_tiles(const std::int32_t* begin, int experts, int size, ExpertList<kThreads, kMost>& list, const Range& range) {
  const int thread = static_cast<int>(threadIdx.x), each = (experts + kThreads - 1) / kThreads;
  const int first = min(thread * each, experts), end = min(first + each, experts);
  const auto tiles_of = [&](int from, int to) { return (to - from + size - 1) / size; };
  int own = 0, at = first < end ? begin[first] : 0;
  const int slot_begin = at;
  int slot_end = at;
  for (int e = first; e < end; ++e) {
    slot_end = begin[e + 1];
    own += tiles_of(at, slot_end);
    at = slot_end;
  }
  int in_warp;
  int before = tiles_before(own, in_warp);
  if (thread % 32 == 0) list.warp_totals[thread / 32] = in_warp;
  __syncthreads();
  int all = 0;
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) {
    if (warp == thread / 32) before += all;
    all += list.warp_totals[warp];
  }
  const int2 wanted = range(all);
  if (own > 0 && before < wanted.y && before + own > wanted.x) {
    int slot = slot_begin, next = slot_end;
    for (int e = first; e < end; ++e) {
      if (each > 1) slot = begin[e], next = begin[e + 1];
      for (; slot < next; slot += size, ++before) {
        if (before < wanted.x || before >= wanted.y || before - wanted.x >= kMost) continue;
        list.tiles[before - wanted.x] = {.expert = e, .first = slot, .count = min(size, next - slot)};
      }
    }
  }
  return wanted;
}

}  // namespace reckoner::cuda
