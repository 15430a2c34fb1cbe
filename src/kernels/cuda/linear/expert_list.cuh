// The expert tiles of a launch, in order, and how a stream of weights walks through its share of them: found on the device, so that a
// launch depends on shapes only.
#pragma once

#include "kernels/cuda/linear/expert_tiles.cuh"

namespace reckoner::cuda {

// A divisor that is known before a launch: a division is two products. The first quotient is right or one too small.
struct Divisor {
  std::uint32_t by, factor;
  __device__ int divide(int value) const {
    const auto all = static_cast<std::uint32_t>(value);
    const std::uint32_t quotient = __umulhi(all, factor);
    return static_cast<int>(quotient + (all - quotient * by >= by ? 1 : 0));
  }
  __device__ int divide_up(int value) const { return divide(value + static_cast<int>(by) - 1); }
};
inline Divisor divisor(std::int64_t by) {
  const auto narrow = static_cast<std::uint32_t>(by);
  return {.by = narrow, .factor = 0xffffffffu / narrow};
}

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

// The same where each slot is a tile, which it is where there is one token: nothing need be counted. `meanwhile()` is called once the
// experts are asked for.
template <int kThreads, int kMost, class Range, class Meanwhile>
__device__ int2 list_slots(const std::int32_t* begin, int experts, ExpertList<kThreads, kMost>& list, const Range& range,
                           const Meanwhile& meanwhile) {
  const int thread = static_cast<int>(threadIdx.x);
  int from = thread < experts ? begin[thread] : 0, to = thread < experts ? begin[thread + 1] : 0;
  const int all = begin[experts];
  __syncwarp();  // what others wait for is asked for first
  meanwhile();
  const int2 wanted = range(all);
  for (int e = thread; e < experts; e += kThreads) {
    if (e != thread) from = begin[e], to = begin[e + 1];
    for (int slot = max(from, wanted.x); slot < min(to, min(wanted.y, wanted.x + kMost)); ++slot)
      list.tiles[slot - wanted.x] = {.expert = e, .first = slot, .count = 1};
  }
  return wanted;
}

}  // namespace reckoner::cuda
