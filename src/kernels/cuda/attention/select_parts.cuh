// What kernels that select share: prefix sums over a block, the digit that is reached, and writing what is selected.
#pragma once

#include "kernels/cuda/attention/select_split.cuh"
#include "kernels/cuda/common/numbers.cuh"

namespace reckoner::cuda {

inline constexpr int kOrdersOfLoad = 4;  // neighbouring scores: one load of sixteen bytes

// Sums of `value` over the threads before this one; `total` is that of all. `of_warp` may be used again after the next barrier.
template <int kBlock>
__device__ int sum_before(int value, int* of_warp, int& total) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int sum = value;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  const int of_lane = lane < kBlock / 32 ? of_warp[lane] : 0;
  total = __reduce_add_sync(kAllLanes, of_lane);
  return sum - value + __reduce_add_sync(kAllLanes, lane < warp ? of_lane : 0);
}

struct SharedReached {
  int of_warp[32];
  Reached found;
};

// From the counts of the digits, of which at least `wanted` were counted. All threads of the block call it, one after a barrier.
template <int kBlock, int kDigits>
__device__ Reached find_digit(const std::int32_t* counts, int wanted, SharedReached& shared) {
  constexpr int kOwn = kDigits / kBlock;
  const int top = kDigits - 1 - static_cast<int>(threadIdx.x) * kOwn;
  int own[kOwn], sum = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    own[i] = counts[top - i];
    sum += own[i];
  }
  int total;
  int before = sum_before<kBlock>(sum, shared.of_warp, total);
  if (before < wanted && wanted <= before + sum) {  // one thread
    bool found = false;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!found && wanted <= before + own[i]) {
        shared.found = {.digits = static_cast<std::uint32_t>(top - i), .wanted = wanted - before};
        found = true;
      }
      before += own[i];
    }
  }
  __syncthreads();
  return shared.found;
}

__device__ inline void load_orders(const std::uint32_t* at, std::uint32_t (&orders)[kOrdersOfLoad]) {
  const uint4 all = *reinterpret_cast<const uint4*>(at);
  orders[0] = all.x, orders[1] = all.y, orders[2] = all.z, orders[3] = all.w;
}

// Writes the neighbouring positions from `first` on that are selected: those above the threshold, and the first `wanted` of those equal to
// it.
template <int kCount>
__device__ void emit(const std::uint32_t (&orders)[kCount], int first, int context, const Reached& threshold, int above, int ties,
                     std::int32_t* selected) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (first + i >= context) continue;
    if (orders[i] > threshold.digits) {
      selected[above + min(ties, threshold.wanted)] = first + i;
      ++above;
    } else if (orders[i] == threshold.digits) {
      if (ties < threshold.wanted) selected[above + ties] = first + i;
      ++ties;
    }
  }
}

// How many of a thread's orders are above the threshold, and 65536 times how many are equal to it.
template <int kCount>
__device__ int count_orders(const std::uint32_t (&orders)[kCount], int first, int context, std::uint32_t threshold) {
  int counted = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (first + i >= context) continue;
    counted += orders[i] > threshold ? 1 : orders[i] == threshold ? 1 << 16 : 0;
  }
  return counted;
}

// Of a token that selects everything up to its own position; a block writes the positions from `first` on.
__device__ inline void select_all(const Selecting& args, std::int64_t token, int first, int end, int context) {
  for (int i = first + static_cast<int>(threadIdx.x); i < min(end, context); i += static_cast<int>(blockDim.x))
    args.selected[token * args.top_k + i] = i;
  if (first == 0 && threadIdx.x == 0) args.counts[token] = context;
}

}  // namespace reckoner::cuda
