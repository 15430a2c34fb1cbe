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

// The index-th tile, when each expert's slots are cut into tiles of `size`. All threads of the block call it; `shared` is one for all.
__device__ inline ExpertTile find_expert_tile(const std::int32_t* begin, int experts, int size, int index, ExpertTile& shared) {
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x);
    const int each = (experts + 31) / 32;
    const int first = min(lane * each, experts), end = min(first + each, experts);
    int tiles = 0;
    for (int e = first; e < end; ++e) tiles += (begin[e + 1] - begin[e] + size - 1) / size;
    int before = tiles;  // inclusive prefix sum over the lanes
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kAllLanes, before, step);
      if (lane >= step) before += other;
    }
    if (lane == 31 && index >= before) shared.expert = -1;
    before -= tiles;
    if (index >= before && index < before + tiles) {
      int e = first;
      for (; index >= before + (begin[e + 1] - begin[e] + size - 1) / size; ++e) before += (begin[e + 1] - begin[e] + size - 1) / size;
      shared.expert = e;
      shared.first = begin[e] + (index - before) * size;
      shared.count = min(size, begin[e + 1] - shared.first);
    }
  }
  __syncthreads();
  return shared;
}

}  // namespace reckoner::cuda
