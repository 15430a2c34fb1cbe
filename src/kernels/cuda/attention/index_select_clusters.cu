// index_select for BF16 keys of 128 elements (what all published models have) and a context beyond top_k, in two launches: one scores keys
// through the matrix instruction, one selects (select_clusters.cuh). A warp takes 32 keys straight from memory; a block makes operands of
// the queries itself. Queries are two BF16 numbers each, off by 2^-18: a tenth of what the bound on float sums of 128 terms allows.
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/index_scores.cuh"
#include "kernels/cuda/attention/select_clusters.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kPieces = kDim / 8;  // of a head
constexpr int kParts = 2;
constexpr int kThreads = 128;
constexpr int kWarpKeys = 32;
constexpr int kStepKeys = kThreads / 32 * kWarpKeys;  // that a block scores at a time
constexpr std::int64_t kBlocks = 528;                 // four on each of a large GPU's multiprocessors

struct Scoring {
  const float* q;        // [tokens, heads, 128]
  const float* weights;  // [tokens, heads]
  float scale;
  DeviceCache keys;
  int heads, block_keys, top_k;
  std::uint32_t* orders;  // [tokens, stride]
  std::int64_t stride;
};

// So that what a warp reads at once is in different banks.
__device__ int place_of(int head, int piece) { return head * kPieces + (piece ^ (head & 1) << 2); }

// A pair as two, each rounded to nearest.
__device__ void round_parts(float low, float high, std::uint32_t& first, std::uint32_t& second) {
  first = round_pair(low, high);
  second = round_pair(low - bf16_to_float(first & 0xffffu), high - __uint_as_float(first & 0xffff0000u));
}

// Keys g, g + 8, g + 16 and g + 24 of the 32 from `first` on, which lie in one page.
__device__ void load_keys(const DeviceCache& keys, std::int64_t token, int first, int end, uint4 (&to)[4][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const std::byte* row = cache_row(keys, token, first) + g * keys.row_bytes + t * 16;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[j][i] = make_uint4(0, 0, 0, 0);
      if (first + j * 8 + g < end) to[j][i] = *reinterpret_cast<const uint4*>(row + j * 8 * keys.row_bytes + i * 64);
    }
  }
}

// Scores of the same four keys, over all heads, for each lane of a quad.
__device__ void score_keys(const uint4 (&keys)[4][4], const uint4* q, const float* weights, int heads, float (&scores)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (float& score : scores) score = 0;
#pragma unroll 1
  for (int tile = 0; tile < heads / 8; ++tile) {
    float dots[kParts][2][4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const uint4 b = q[part * heads * kPieces + place_of(tile * 8 + g, i * 4 + t)];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const uint4 low = keys[2 * m][i], high = keys[2 * m + 1][i];
          mma_bf16(dots[part][m], low.x, high.x, low.y, high.y, b.x, b.y);
          mma_bf16(dots[part][m], low.z, high.z, low.w, high.w, b.z, b.w);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float dot = dots[0][m][i] + dots[1][m][i];
        // A comparison with NaN is false: it stays one.
        float& score = scores[2 * m + i / 2];
        score = fmaf(weights[tile * 8 + t * 2 + i % 2], dot < 0 ? 0.0f : dot, score);
      }
    }
  }
#pragma unroll
  for (float& score : scores) {
    score += __shfl_xor_sync(kAllLanes, score, 1);
    score += __shfl_xor_sync(kAllLanes, score, 2);
  }
}

__global__ void __launch_bounds__(kThreads, 4) index_scores_parts_kernel(const __grid_constant__ Scoring args) {
  wait_for_previous();
  extern __shared__ uint4 q[];  // [kParts, heads, kPieces]
  __shared__ float weights[kMostIndexHeads];
  const std::int64_t token = blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, pieces = args.heads * kPieces;
  const int context = args.keys.positions[token] + 1, block_first = static_cast<int>(blockIdx.x) * args.block_keys;
  if (context <= args.top_k || block_first >= context) return let_next_begin();
  const int end = min(block_first + args.block_keys, context);
  int first = block_first + thread / 32 * kWarpKeys;
  uint4 keys[4][4];
  if (first < end) load_keys(args.keys, token, first, end, keys);
  const auto* from = reinterpret_cast<const float4*>(args.q + token * args.heads * kDim);
#pragma unroll 2
  for (int i = thread; i < pieces; i += kThreads) {
    const float4 low = from[2 * i], high = from[2 * i + 1];
    uint4 parts[kParts];
    round_parts(low.x, low.y, parts[0].x, parts[1].x);
    round_parts(low.z, low.w, parts[0].y, parts[1].y);
    round_parts(high.x, high.y, parts[0].z, parts[1].z);
    round_parts(high.z, high.w, parts[0].w, parts[1].w);
#pragma unroll
    for (int part = 0; part < kParts; ++part) q[part * pieces + place_of(i / kPieces, i % kPieces)] = parts[part];
  }
  if (thread < args.heads) weights[thread] = args.weights[token * args.heads + thread] * args.scale;
  __syncthreads();
  while (first < end) {
    float scores[4];
    score_keys(keys, q, weights, args.heads, scores);
    const int own = lane % 4, key = first + own * 8 + lane / 4;  // each lane of a quad keeps one of the four
    const float score = own == 0 ? scores[0] : own == 1 ? scores[1] : own == 2 ? scores[2] : scores[3];
    if (key < end) args.orders[token * args.stride + key] = order_of(score);
    first += kStepKeys;
    if (first < end) load_keys(args.keys, token, first, end, keys);
  }
  let_next_begin();
}

std::int64_t stride_of(const IndexSelectArgs& args) { return round_up(args.max_context, kSelectChunk); }

// Tokens of a launch, so that the workspace stays modest.
std::int64_t tokens_at_once(const IndexSelectArgs& args) {
  constexpr std::int64_t kMostBytes = 128 << 20;
  return std::clamp<std::int64_t>(kMostBytes / (stride_of(args) * 4), 1, args.q.dim(0));
}

bool fits(const IndexSelectArgs& args) {
  return args.max_context > args.selection.top_k() && args.max_context <= kMostClusterScores && fits_index_mma(args) &&
         select_clusters_fit();
}

std::int64_t workspace(const IndexSelectArgs& args, int threads) {
  if (!fits(args)) return index_select_split().workspace_bytes(args, threads);
  return tokens_at_once(args) * stride_of(args) * 4;
}

void run(const IndexSelectArgs& args, Lane& lane) {
  if (!fits(args)) return index_select_split().run(args, lane);
  const std::int64_t tokens = args.q.dim(0), heads = args.q.dim(1), top_k = args.selection.top_k();
  const std::size_t shared = kParts * static_cast<std::size_t>(heads) * kDim * 2;
  Scoring scoring{.q = args.q.f32(),
                  .weights = args.weights.f32(),
                  .scale = args.scale,
                  .keys = device_cache(args.keys, args.places),
                  .heads = static_cast<int>(heads),
                  .block_keys = 0,
                  .top_k = static_cast<int>(top_k),
                  .orders = reinterpret_cast<std::uint32_t*>(lane.workspace),
                  .stride = stride_of(args)};
  Selecting selecting{.positions = args.places.positions.i32(),
                      .orders = scoring.orders,
                      .stride = scoring.stride,
                      .digits = nullptr,
                      .reached = nullptr,
                      .chunks = nullptr,
                      .top_k = scoring.top_k,
                      .counts = args.selection.counts.i32(),
                      .selected = args.selection.positions.i32()};
  allow_shared(index_scores_parts_kernel, static_cast<std::int64_t>(shared));
  const std::int64_t at_once = tokens_at_once(args);
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    const std::int64_t some = std::min(at_once, tokens - first);
    // As many blocks as run at a time, where the keys make so many: each of them reads all queries.
    const std::int64_t steps = std::clamp<std::int64_t>(blocks_for(some * args.max_context, kStepKeys * kBlocks), 1, 8);
    scoring.block_keys = static_cast<int>(steps * kStepKeys);
    const dim3 grid(blocks_for(args.max_context, scoring.block_keys), static_cast<unsigned>(some));
    launch(index_scores_parts_kernel, grid, kThreads, shared, stream_of(lane), scoring);
    select_clusters(selecting, some, args.max_context, stream_of(lane));
    scoring.q += some * heads * kDim;
    scoring.weights += some * heads;
    scoring.keys.table += some * scoring.keys.table_width;
    scoring.keys.positions += some;
    selecting.positions += some;
    selecting.counts += some;
    selecting.selected += some * top_k;
  }
}

Support supports(const Key&, const DeviceInfo& device) {
  if (device.cuda.major != 9) return {.yes = false, .reason = "needs clusters of sixteen blocks, which compute capability 9.0 has"};
  return supports_portable(device, kPortableSharedBytes);  // where it goes another way
}

}  // namespace

Kernel<IndexSelectArgs> index_select_clusters() { return {"index_select.clusters.cuda", supports, workspace, run}; }

}  // namespace reckoner::cuda
