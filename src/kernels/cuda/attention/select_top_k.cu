#include "kernels/cuda/attention/select_top_k.cuh"
#include "kernels/cuda/common/numbers.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;

// A number that orders as scores do; both zeros are one, NaN is minus infinity.
__device__ std::uint32_t order_of(float score) {
  if (isnan(score)) score = -INFINITY;
  const std::uint32_t bits = __float_as_uint(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

struct Threshold {
  std::uint32_t value;  // the top_k-th largest
  int ties;             // how many equal to it are selected
};

constexpr int kDigits = 2048;  // of eleven bits, the last of ten
constexpr int kAtOnce = 8;     // scores that a thread has under way

// Radix select from the top. All counts are integers: the order of additions does not show. Scores share their first digits, so equal ones
// of a warp are counted together there.
__device__ Threshold find_threshold(const float* scores, int count, int top_k, int* histogram) {
  __shared__ std::uint32_t chosen_digit;
  __shared__ int left;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t prefix = 0, mask = 0;
  int wanted = top_k;
  for (const int shift : {21, 10, 0}) {
    const std::uint32_t digit_mask = shift == 0 ? 1023u : 2047u;
    for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kThreads) histogram[i] = 0;
    __syncthreads();
    for (int first = 0; first < count; first += kThreads * kAtOnce) {
      float some[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + j * kThreads + static_cast<int>(threadIdx.x);
        some[j] = i < count ? scores[i] : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const std::uint32_t order = order_of(some[j]);
        const bool counts = first + j * kThreads + static_cast<int>(threadIdx.x) < count && (order & mask) == prefix;
        const std::uint32_t digit = order >> shift & digit_mask;
        if (shift == 21) {
          const unsigned alike = __match_any_sync(kAllLanes, counts ? digit : kDigits);
          if (counts && lane == __ffs(static_cast<int>(alike)) - 1) atomicAdd(&histogram[digit], __popc(alike));
        } else if (counts) {
          atomicAdd(&histogram[digit], 1);
        }
      }
    }
    __syncthreads();
    if (threadIdx.x < 32) {  // a lane sums 64 digits, from the largest down
      constexpr int kEach = kDigits / 32;
      const int top = kDigits - 1 - lane * kEach;
      int own = 0;
#pragma unroll 8
      for (int i = 0; i < kEach; ++i) own += histogram[top - i];
      int before = own;
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(kAllLanes, before, step);
        if (lane >= step) before += other;
      }
      before -= own;
      if (before < wanted && wanted <= before + own) {
        int digit = top;
        while (before + histogram[digit] < wanted) before += histogram[digit--];
        chosen_digit = static_cast<std::uint32_t>(digit);
        left = wanted - before;
      }
    }
    __syncthreads();
    prefix |= chosen_digit << shift;
    mask |= digit_mask << shift;
    wanted = left;
    __syncthreads();
  }
  return {.value = prefix, .ties = wanted};
}

// Exclusive prefix sums of two flags over the block, as `low` + `high` << 16 would be; `totals` are those of the whole block.
__device__ int2 prefix_of_flags(bool a, bool b, int2* of_warp, int2& totals) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned votes_a = __ballot_sync(kAllLanes, a), votes_b = __ballot_sync(kAllLanes, b), below = (1u << lane) - 1;
  if (lane == 0) of_warp[warp] = make_int2(__popc(votes_a), __popc(votes_b));
  __syncthreads();
  int2 before = make_int2(__popc(votes_a & below), __popc(votes_b & below));
  totals = make_int2(0, 0);
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before.x += of_warp[w].x, before.y += of_warp[w].y;
    totals.x += of_warp[w].x, totals.y += of_warp[w].y;
  }
  __syncthreads();
  return before;
}

__global__ void __launch_bounds__(kThreads) select_top_k_kernel(const float* scores, std::int64_t stride, const std::int32_t* positions,
                                                                int top_k, std::int32_t* counts, std::int32_t* selected) {
  begin_kernel();
  __shared__ int histogram[kDigits];
  __shared__ int2 of_warp[kWarps];
  const std::int64_t token = blockIdx.x;
  const int context = positions[token] + 1;
  scores += token * stride;
  selected += token * top_k;
  if (threadIdx.x == 0) counts[token] = min(context, top_k);
  if (context <= top_k) {
    for (int i = static_cast<int>(threadIdx.x); i < context; i += kThreads) selected[i] = i;
    return;
  }
  const Threshold threshold = find_threshold(scores, context, top_k, histogram);
  int above = 0, ties = 0;  // found so far
  float next = static_cast<int>(threadIdx.x) < context ? scores[threadIdx.x] : 0.0f;
  for (int first = 0; first < context; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const std::uint32_t order = order_of(next);
    if (i + kThreads < context) next = scores[i + kThreads];
    const bool is_above = i < context && order > threshold.value, is_tie = i < context && order == threshold.value;
    int2 totals;
    const int2 before = prefix_of_flags(is_above, is_tie, of_warp, totals);
    const int ties_before = ties + before.y;
    if (is_above || (is_tie && ties_before < threshold.ties)) selected[above + before.x + min(ties_before, threshold.ties)] = i;
    above += totals.x;
    ties += totals.y;
  }
}

}  // namespace

void select_top_k(const float* scores, std::int64_t stride, const std::int32_t* positions, std::int64_t tokens, std::int64_t top_k,
                  std::int32_t* counts, std::int32_t* selected, cudaStream_t stream) {
  launch(select_top_k_kernel, static_cast<unsigned>(tokens), kThreads, 0, stream, scores, stride, positions, static_cast<int>(top_k),
         counts, selected);
}

}  // namespace reckoner::cuda
