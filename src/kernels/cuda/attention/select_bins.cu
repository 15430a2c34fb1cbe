// One block takes a token's scores into registers and puts them into bins between the smallest and the largest; the bin that holds the
// threshold is found, and what is in it is ranked. Where scores are so uneven that the bin holds too many, the threshold is found bit by
// bit. Whatever is counted is an integer, and what is ranked are values: the order in which threads come does not show.
#include "kernels/cuda/attention/select_parts.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 2048;
constexpr int kMostListed = 1024;
constexpr std::uint32_t kLowest = 0x007fffffu;  // order_of(-infinity)
static_assert(kThreads * 16 == kMostBinScores && kMostListed == kThreads);

struct Shared {
  alignas(16) int bins[kBins];
  alignas(16) std::uint32_t list[kMostListed];  // what is in the bin of the threshold, then zeros
  int listed;
  int of_warp[kWarps];
  std::uint32_t low_of_warp[kWarps], high_of_warp[kWarps];
  SharedReached reached;
  Reached threshold;
  int takes_ties;  // whether all that are equal to the threshold are selected, as they mostly are
};

// The score that has an order, but for the sign of zero; of 0, which no score has, NaN.
__device__ float score_of(std::uint32_t order) { return __uint_as_float((order & 0x80000000u) != 0 ? order ^ 0x80000000u : ~order); }

// The bin rises with the score, whatever that and the bounds are: what is no number goes to the first. A bin is known by the bits of a
// float whose last place is 1.
constexpr float kBinsFrom = 0x1p23f;
struct Bins {
  float factor, offset;
  __device__ int of(std::uint32_t order) const {
    const float part = __saturatef(fmaf(score_of(order), factor, offset));
    return static_cast<int>(__float_as_uint(fmaf(part, static_cast<float>(kBins - 1), kBinsFrom)) - 0x4b000000u);
  }
};

// Between the bounds of the scores above minus infinity.
template <int kEach>
__device__ Bins find_bins(const std::uint32_t (&orders)[kEach], Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::uint32_t low = 0xffffffffu, high = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    low = min(low, orders[i] > kLowest ? orders[i] : 0xffffffffu);
    high = max(high, orders[i]);
  }
  low = __reduce_min_sync(kAllLanes, low);
  high = __reduce_max_sync(kAllLanes, high);
  if (lane == 0) shared.low_of_warp[warp] = low, shared.high_of_warp[warp] = high;
  __syncthreads();
  low = __reduce_min_sync(kAllLanes, shared.low_of_warp[lane]);
  high = __reduce_max_sync(kAllLanes, shared.high_of_warp[lane]);
  if (low > high) return {.factor = 0, .offset = 0};
  const float factor = 1.0f / (score_of(high) - score_of(low));
  return {.factor = factor, .offset = -score_of(low) * factor};
}

template <int kEach>
__device__ int count_at_least(const std::uint32_t (&orders)[kEach], std::uint32_t bound, Shared& shared) {
  int own = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) own += orders[i] >= bound;
  return block_sum<kThreads>(own, shared.of_warp);
}

template <int kEach>
__device__ Reached search_threshold(const std::uint32_t (&orders)[kEach], int top_k, Shared& shared) {
  std::uint32_t threshold = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const std::uint32_t bound = threshold | 1u << bit;
    if (count_at_least(orders, bound, shared) >= top_k) threshold = bound;
  }
  const int above = threshold == 0xffffffffu ? 0 : count_at_least(orders, threshold + 1, shared);
  return {.digits = threshold, .wanted = top_k - above};
}

// From the counts of the bins, once all threads have counted.
template <int kEach>
__device__ Reached find_threshold(const std::uint32_t (&orders)[kEach], const int (&bins)[kEach], int top_k, Shared& shared) {
  __syncthreads();
  const Reached bin = find_digit<kThreads, kBins>(shared.bins, top_k, shared.reached);
  const int in_bin = static_cast<int>(bin.digits), count = shared.bins[in_bin];
  if (count > kMostListed) return search_threshold(orders, top_k, shared);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (bins[i] == in_bin) shared.list[atomicAdd(&shared.listed, 1)] = orders[i];
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < count) {
    const std::uint32_t order = shared.list[threadIdx.x];
    int above = 0, alike = 0;
    for (int i = 0; i < count; i += 4) {
      const uint4 four = reinterpret_cast<const uint4*>(shared.list)[i / 4];
      above += (four.x > order) + (four.y > order) + (four.z > order) + (four.w > order);
      alike += (four.x == order) + (four.y == order) + (four.z == order) + (four.w == order);
    }
    // All that are equal write the same.
    if (above < bin.wanted && bin.wanted <= above + alike) {
      shared.threshold = {.digits = order, .wanted = bin.wanted - above};
      shared.takes_ties = above + alike == bin.wanted ? 1 : 0;
    }
  }
  __syncthreads();
  return shared.threshold;
}

// A thread has kEach neighbouring scores. Those that do not exist have order 0, below all others, and stand behind them: none is selected.
template <int kEach>
__global__ void __launch_bounds__(kThreads, 1) select_bins_kernel(const __grid_constant__ Selecting args) {
  __shared__ Shared shared;
  const std::int64_t token = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), first = thread * kEach;
  static_assert(kBins == 2 * kThreads);
  reinterpret_cast<int2*>(shared.bins)[thread] = make_int2(0, 0);
  shared.list[thread] = 0;
  if (thread == 0) shared.listed = 0, shared.takes_ties = 0;
  begin_kernel();
  // Asked for before it is known where the token stands: what is behind that is anything, and not looked at.
  std::uint32_t orders[kEach];
#pragma unroll
  for (int i = 0; i < kEach; i += kOrdersOfLoad) {
    std::uint32_t four[kOrdersOfLoad] = {};
    if (first + i < args.stride) load_orders(args.orders + token * args.stride + first + i, four);
#pragma unroll
    for (int j = 0; j < kOrdersOfLoad; ++j) orders[i + j] = four[j];
  }
  const int context = args.positions[token] + 1;
  if (context <= args.top_k) return select_all(args, token, 0, context, context);
#pragma unroll
  for (int i = 0; i < kEach; ++i) orders[i] = first + i < context ? orders[i] : 0;
  const Bins find = find_bins(orders, shared);
  int bins[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) bins[i] = find.of(orders[i]);
#pragma unroll
  for (int i = 0; i < kEach; ++i) atomicAdd(&shared.bins[bins[i]], 1);
  const Reached threshold = find_threshold(orders, bins, args.top_k, shared);
  std::int32_t* const selected = args.selected + token * args.top_k;
  if (thread == 0) args.counts[token] = args.top_k;
  int total;
  if (shared.takes_ties != 0) {
    int own = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) own += orders[i] >= threshold.digits ? 1 : 0;
    int at = sum_before<kThreads>(own, shared.of_warp, total);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (orders[i] >= threshold.digits) selected[at++] = first + i;
    }
    return;
  }
  const int before = sum_before<kThreads>(count_orders(orders, first, context, threshold.digits), shared.of_warp, total);
  emit(orders, first, context, threshold, before & 0xffff, before >> 16, selected);
}

}  // namespace

void select_bins(const Selecting& selecting, std::int64_t tokens, std::int64_t max_context, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(tokens);
  if (max_context <= kThreads * 8) {
    launch(select_bins_kernel<8>, rows, kThreads, 0, stream, selecting);
  } else {
    launch(select_bins_kernel<16>, rows, kThreads, 0, stream, selecting);
  }
}

}  // namespace reckoner::cuda
