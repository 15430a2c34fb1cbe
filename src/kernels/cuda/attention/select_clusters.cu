// Scores are put into bins between the smallest and the largest, the bin that holds the threshold is found, and what is in it is ranked.
// Where scores are so uneven that the bin holds too many, the threshold is found bit by bit. Whatever is counted is an integer, and what is
// ranked are values: the order in which threads come does not show.
#include "kernels/cuda/attention/select_clusters.cuh"

#include "kernels/cuda/attention/select_parts.cuh"
#include "kernels/cuda/common/cluster.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 2048;
constexpr int kMostListed = 1024;
constexpr int kMostBlocks = 16;
constexpr std::uint32_t kLowest = 0x007fffffu;  // order_of(-infinity)

struct Shared {
  int bins[kBins];                                      // counts of the block
  int totals[kBins / 2];                                // counts of the cluster in the block's share of the bins
  std::uint32_t own[kMostListed], listed[kMostListed];  // in the bin of the threshold: of the block, of the cluster
  int of_warp[kWarps];
  std::uint32_t low_of_warp[kWarps], high_of_warp[kWarps];
  int count;  // of `own`
  SharedReached reached;
  Reached threshold;
  // What other blocks read.
  int low, high, share, bin, wanted, above, ties;
  int at_least[2];
};

// The score that has an order, but for the sign of zero.
__device__ float score_of(std::uint32_t order) { return __uint_as_float((order & 0x80000000u) != 0 ? order ^ 0x80000000u : ~order); }

__device__ void barrier_of(int blocks) {
  if (blocks == 1) {
    __syncthreads();
  } else {
    cluster_barrier();
  }
}

// Rises with the score, NaN and infinities among the bounds included.
struct Bins {
  float low, factor;
  __device__ int of(std::uint32_t order) const {
    return max(static_cast<int>(fminf((score_of(order) - low) * factor, static_cast<float>(kBins - 1))), 0);
  }
};

// Bounds of the scores above minus infinity.
template <int kEach>
__device__ Bins find_bins(const std::uint32_t (&orders)[kEach], int valid, int blocks, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::uint32_t low = 0xffffffffu, high = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (i >= valid || orders[i] <= kLowest) continue;
    low = min(low, orders[i]);
    high = max(high, orders[i]);
  }
  low = __reduce_min_sync(kAllLanes, low);
  high = __reduce_max_sync(kAllLanes, high);
  if (lane == 0) shared.low_of_warp[warp] = low, shared.high_of_warp[warp] = high;
  __syncthreads();
  low = __reduce_min_sync(kAllLanes, shared.low_of_warp[lane]);
  high = __reduce_max_sync(kAllLanes, shared.high_of_warp[lane]);
  if (blocks > 1) {
    if (threadIdx.x == 0) shared.low = static_cast<int>(low), shared.high = static_cast<int>(high);
    cluster_barrier();
    low = __reduce_min_sync(kAllLanes, static_cast<std::uint32_t>(load_of_block(&shared.low, min(lane, blocks - 1))));
    high = __reduce_max_sync(kAllLanes, static_cast<std::uint32_t>(load_of_block(&shared.high, min(lane, blocks - 1))));
  }
  if (low > high) return {.low = 0, .factor = 0};
  return {.low = score_of(low), .factor = static_cast<float>(kBins - 1) / (score_of(high) - score_of(low))};
}

// The bin where counting from the largest on reaches top_k, and how many in it are wanted.
__device__ Reached find_bin(int top_k, int blocks, int rank, Shared& shared) {
  barrier_of(blocks);
  if (blocks == 1) return find_digit<kThreads, kBins>(shared.bins, top_k, shared.reached);
  // A block has a share of the bins; a thread adds up a bin of two blocks.
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, share = kBins / blocks, first = rank * share;
  const int bin = thread % share, other = thread / share * 2;
  atomicAdd(&shared.totals[bin], load_of_block(&shared.bins[first + bin], other) + load_of_block(&shared.bins[first + bin], other + 1));
  __syncthreads();
  const int own = thread < share ? shared.totals[share - 1 - thread] : 0;
  int total;
  int before = sum_before<kThreads>(own, shared.of_warp, total);
  if (thread == 0) shared.share = total;
  cluster_barrier();
  const int of_lane = lane < blocks ? load_of_block(&shared.share, lane) : 0;
  before += __reduce_add_sync(kAllLanes, lane > rank ? of_lane : 0);
  if (before < top_k && top_k <= before + own) {  // one thread of the cluster
    shared.bin = first + share - 1 - thread;
    shared.wanted = top_k - before;
  }
  // Which block has it every block finds for itself.
  int above = of_lane;
  for (int step = 1; step < 32; step *= 2) {
    const int next = __shfl_down_sync(kAllLanes, above, step);
    if (lane + step < 32) above += next;
  }
  const int owner = 31 - __clz(static_cast<int>(__ballot_sync(kAllLanes, lane < blocks && above >= top_k)));
  cluster_barrier();
  return {.digits = static_cast<std::uint32_t>(load_of_block(&shared.bin, owner)), .wanted = load_of_block(&shared.wanted, owner)};
}

// How many of the cluster's orders are at least `bound`; `turn` alternates.
template <int kEach>
__device__ int count_at_least(const std::uint32_t (&orders)[kEach], int valid, std::uint32_t bound, int turn, int blocks, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int own = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) own += i < valid && orders[i] >= bound;
  own = block_sum<kThreads>(own, shared.of_warp);
  if (blocks == 1) return own;
  if (threadIdx.x == 0) shared.at_least[turn] = own;
  cluster_barrier();
  return __reduce_add_sync(kAllLanes, lane < blocks ? load_of_block(&shared.at_least[turn], lane) : 0);
}

template <int kEach>
__device__ Reached search_threshold(const std::uint32_t (&orders)[kEach], int valid, int top_k, int blocks, Shared& shared) {
  std::uint32_t threshold = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const std::uint32_t bound = threshold | 1u << bit;
    if (count_at_least(orders, valid, bound, bit % 2, blocks, shared) >= top_k) threshold = bound;
  }
  const int above = threshold == 0xffffffffu ? 0 : count_at_least(orders, valid, threshold + 1, 1, blocks, shared);
  return {.digits = threshold, .wanted = top_k - above};
}

// From the bin of the threshold, where few enough are in it.
template <int kEach>
__device__ Reached find_threshold(const std::uint32_t (&orders)[kEach], int valid, const Bins& bins, int top_k, int blocks, int rank,
                                  Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const Reached bin = find_bin(top_k, blocks, rank, shared);
  const int in_bin = static_cast<int>(bin.digits);
  const int of_lane = lane < blocks ? load_of_block(&shared.bins[in_bin], lane) : 0;
  const int count = __reduce_add_sync(kAllLanes, of_lane);
  if (count > kMostListed) return search_threshold(orders, valid, top_k, blocks, shared);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (i < valid && bins.of(orders[i]) == in_bin) shared.own[atomicAdd(&shared.count, 1)] = orders[i];
  }
  barrier_of(blocks);
  const std::uint32_t* list = shared.own;
  if (blocks > 1) {
    for (int block = warp; block < blocks; block += kWarps) {
      const int begin = __reduce_add_sync(kAllLanes, lane < block ? of_lane : 0), own = __shfl_sync(kAllLanes, of_lane, block);
      for (int i = lane; i < own; i += 32) {
        shared.listed[begin + i] = static_cast<std::uint32_t>(load_of_block(reinterpret_cast<const int*>(&shared.own[i]), block));
      }
    }
    list = shared.listed;
    __syncthreads();
  }
  if (thread < count) {
    const std::uint32_t order = list[thread];
    int above = 0, alike = 0;
    for (int i = 0; i < count; ++i) {
      above += list[i] > order;
      alike += list[i] == order;
    }
    // All that are equal write the same.
    if (above < bin.wanted && bin.wanted <= above + alike) shared.threshold = {.digits = order, .wanted = bin.wanted - above};
  }
  __syncthreads();
  return shared.threshold;
}

// Grid: blocks of a token, tokens. A thread has kEach neighbouring scores.
template <int kEach>
__global__ void __launch_bounds__(kThreads, 1) select_clusters_kernel(const __grid_constant__ Selecting args) {
#if __CUDA_ARCH__ >= 900
  begin_kernel();
  __shared__ Shared shared;
  const std::int64_t token = blockIdx.y;
  const int blocks = static_cast<int>(gridDim.x), rank = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, first = (rank * kThreads + thread) * kEach;
  const int context = args.positions[token] + 1;
  if (context <= args.top_k) return select_all(args, token, rank * kThreads * kEach, (rank + 1) * kThreads * kEach, context);
  const int valid = context - first;
  std::uint32_t orders[kEach];
#pragma unroll
  for (int i = 0; i < kEach; i += kOrdersOfLoad) {
    std::uint32_t four[kOrdersOfLoad] = {};
    if (i < valid) load_orders(args.orders + token * args.stride + first + i, four);
#pragma unroll
    for (int j = 0; j < kOrdersOfLoad; ++j) orders[i + j] = four[j];
  }
  for (int i = thread; i < kBins; i += kThreads) shared.bins[i] = 0;
  for (int i = thread; i < kBins / 2; i += kThreads) shared.totals[i] = 0;
  if (thread == 0) shared.count = 0;
  const Bins bins = find_bins(orders, valid, blocks, shared);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (i < valid) atomicAdd(&shared.bins[bins.of(orders[i])], 1);
  }
  const Reached threshold = find_threshold(orders, valid, bins, args.top_k, blocks, rank, shared);
  int total;
  const int before = sum_before<kThreads>(count_orders(orders, first, context, threshold.digits), shared.of_warp, total);
  int above = before & 0xffff, ties = before >> 16;
  if (blocks > 1) {
    if (thread == 0) shared.above = total & 0xffff, shared.ties = total >> 16;
    cluster_barrier();
    above += __reduce_add_sync(kAllLanes, lane < rank ? load_of_block(&shared.above, lane) : 0);
    ties += __reduce_add_sync(kAllLanes, lane < rank ? load_of_block(&shared.ties, lane) : 0);
  }
  emit(orders, first, context, threshold, above, ties, args.selected + token * args.top_k);
  if (rank == 0 && thread == 0) args.counts[token] = args.top_k;
  if (blocks > 1) cluster_barrier();  // the others may still read what this block has
#endif
}

template <int kEach>
void launch_select(const Selecting& selecting, std::int64_t tokens, std::int64_t max_context, cudaStream_t stream) {
  unsigned blocks = 1;
  while (blocks * std::int64_t{kThreads * kEach} < max_context) blocks *= 2;
  launch_clusters(select_clusters_kernel<kEach>, dim3(blocks, static_cast<unsigned>(tokens)), blocks, kThreads, 0, stream, selecting);
}

}  // namespace

bool select_clusters_fit() {
  static const bool yes =
      allow_large_clusters(select_clusters_kernel<8>, kThreads, 0) && allow_large_clusters(select_clusters_kernel<16>, kThreads, 0);
  return yes;
}

void select_clusters(const Selecting& selecting, std::int64_t tokens, std::int64_t max_context, cudaStream_t stream) {
  if (max_context <= std::int64_t{kMostBlocks} * kThreads * 8) {
    launch_select<8>(selecting, tokens, max_context, stream);
  } else {
    launch_select<16>(selecting, tokens, max_context, stream);
  }
}

}  // namespace reckoner::cuda
