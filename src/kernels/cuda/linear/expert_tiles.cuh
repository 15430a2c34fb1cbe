// Which expert and which of its slots a block works on: found on the device, so that a launch depends on shapes only.
#pragma once

#include <cstdint>

#include "kernels/cuda/common/numbers.cuh"

namespace reckoner::cuda {

struct ExpertTile {
  int expert = -1;  // -1: there is no such tile
  int first = 0;    // slot
  int count = 0;    // of slots
};

// As many tiles of `size` slots as the slots can make, however they lie.
inline std::int64_t most_expert_tiles(std::int64_t slots, std::int64_t experts, std::int64_t size) {
  return std::min(slots, slots / size + experts);
}

// Exclusive prefix sum over the lanes of a warp; `total` is that of all.
__device__ inline int tiles_before(int tiles, int& total) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int sum = tiles;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  total = __shfl_sync(kAllLanes, sum, 31);
  return sum - tiles;
}

// The index-th tile, when each expert's slots are cut into tiles of `size`. All threads of the block call it; `shared` is one for all.
__device__ inline ExpertTile find_expert_tile(const std::int32_t* begin, int experts, int size, int index, ExpertTile& shared) {
  constexpr int kMostEach = 8;  // experts of a lane that it reads at once
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x), each = (experts + 31) / 32, first = min(lane * each, experts);
    const auto tiles_of = [&](int from, int to) { return (to - from + size - 1) / size; };
    if (each <= kMostEach) {
      const int end = min(first + each, experts);
      int bounds[kMostEach + 1], tiles = 0, total;
#pragma unroll
      for (int i = 0; i <= kMostEach; ++i) bounds[i] = begin[min(first + i, end)];
#pragma unroll
      for (int i = 0; i < kMostEach; ++i) tiles += tiles_of(bounds[i], bounds[i + 1]);
      int before = tiles_before(tiles, total);
      if (lane == 0 && index >= total) shared.expert = -1;
#pragma unroll
      for (int i = 0; i < kMostEach; ++i) {
        const int own = tiles_of(bounds[i], bounds[i + 1]);
        if (index >= before && index < before + own) {
          const int slot = bounds[i] + (index - before) * size;
          shared = {.expert = first + i, .first = slot, .count = min(size, bounds[i + 1] - slot)};
        }
        before += own;
      }
    } else {
      const int end = min(first + each, experts);
      int tiles = 0, total;
      for (int e = first; e < end; ++e) tiles += tiles_of(begin[e], begin[e + 1]);
      int before = tiles_before(tiles, total);
      if (lane == 0 && index >= total) shared.expert = -1;
      if (index >= before && index < before + tiles) {
        int e = first;
        for (; index >= before + tiles_of(begin[e], begin[e + 1]); ++e) before += tiles_of(begin[e], begin[e + 1]);
        const int slot = begin[e] + (index - before) * size;
        shared = {.expert = e, .first = slot, .count = min(size, begin[e + 1] - slot)};
      }
    }
  }
  __syncthreads();
  return shared;
}

}  // namespace reckoner::cuda
