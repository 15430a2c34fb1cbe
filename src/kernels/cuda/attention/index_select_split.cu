// index_select for BF16 keys of 128 elements (what all published models have) and a context beyond top_k: a launch makes operands of the
// queries, one scores keys through the matrix instruction and counts the scores' first digits on the way, then few select
// (select_split.cuh). A warp takes 32 keys straight from memory. Queries are three BF16 numbers each: products are exact, sums are float.
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/index_scores.cuh"
#include "kernels/cuda/attention/select_split.cuh"
#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kPieces = kDim / 8;  // of a head
constexpr int kParts = 3;
constexpr int kThreads = 128;
constexpr int kWarpKeys = 32;
constexpr int kStepKeys = kThreads / 32 * kWarpKeys;  // that a block scores at a time
constexpr std::int64_t kBlocks = 528;                 // four on each of a large GPU's multiprocessors

struct Prepared {
  uint4* q;        // [tokens, kParts, heads, kPieces]: BF16 pairs, placed by place_of()
  float* weights;  // [tokens, heads], times the scale
};

struct Scoring {
  Prepared prepared;
  DeviceCache keys;
  int heads, block_keys;
  Selecting selecting;
};

// So that what a warp reads at once is in different banks.
__device__ int place_of(int head, int piece) { return head * kPieces + (piece ^ (head & 1) << 2); }

constexpr int kPrepareThreads = 256;

__global__ void __launch_bounds__(kPrepareThreads)
    prepare_kernel(const float* q, const float* weights, float scale, int heads, Prepared prepared, Selecting selecting) {
  begin_kernel();
  const std::int64_t token = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), pieces = heads * kPieces;
  if (selecting.positions[token] < selecting.top_k) return;
  auto* digits = reinterpret_cast<int4*>(selecting.digits + token * kAllDigits);
  for (int i = thread; i < kAllDigits / 4; i += kPrepareThreads) digits[i] = make_int4(0, 0, 0, 0);
  for (int i = thread; i < pieces; i += kPrepareThreads) {
    const auto* from = reinterpret_cast<const float4*>(q + token * heads * kDim + i * 8);
    const float4 low = from[0], high = from[1];
    float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      std::uint32_t pairs[4];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) pairs[pair] = take_pair(all[2 * pair], all[2 * pair + 1]);
      prepared.q[(token * kParts + part) * pieces + place_of(i / kPieces, i % kPieces)] =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }
  for (int head = thread; head < heads; head += kPrepareThreads)
    prepared.weights[token * heads + head] = weights[token * heads + head] * scale;
}

// Keys g, g + 8, g + 16 and g + 24 of the 32 from `first` on, which lie in one page.
__device__ void load_keys(const DeviceCache& keys, std::int64_t token, int first, int context, uint4 (&to)[4][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const std::byte* row = cache_row(keys, token, first) + g * keys.row_bytes + t * 16;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[j][i] = make_uint4(0, 0, 0, 0);
      if (first + j * 8 + g < context) to[j][i] = *reinterpret_cast<const uint4*>(row + j * 8 * keys.row_bytes + i * 64);
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
    float dots[2][4] = {};
#pragma unroll
    for (int part = kParts - 1; part >= 0; --part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint4 b = q[part * heads * kPieces + place_of(tile * 8 + g, i * 4 + t)];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const uint4 low = keys[2 * m][i], high = keys[2 * m + 1][i];
          mma_bf16(dots[m], low.x, high.x, low.y, high.y, b.x, b.y);
          mma_bf16(dots[m], low.z, high.z, low.w, high.w, b.z, b.w);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // A comparison with NaN is false: it stays one.
        float& score = scores[2 * m + i / 2];
        score = fmaf(weights[tile * 8 + t * 2 + i % 2], dots[m][i] < 0 ? 0.0f : dots[m][i], score);
      }
    }
  }
#pragma unroll
  for (float& score : scores) {
    score += __shfl_xor_sync(kAllLanes, score, 1);
    score += __shfl_xor_sync(kAllLanes, score, 2);
  }
}

__global__ void __launch_bounds__(kThreads, 4) index_scores_split_kernel(const __grid_constant__ Scoring args) {
  begin_kernel();
  extern __shared__ uint4 q[];  // [kParts, heads, kPieces]
  __shared__ float weights[kMostIndexHeads];
  __shared__ __align__(16) std::int32_t histogram[kFirstDigits];
  const Selecting& selecting = args.selecting;
  const std::int64_t token = blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int context = args.keys.positions[token] + 1, block_first = static_cast<int>(blockIdx.x) * args.block_keys;
  if (context <= selecting.top_k || block_first >= context) return;
  const int end = min(block_first + args.block_keys, context), pieces = kParts * args.heads * kPieces;
  for (int i = thread; i < pieces; i += kThreads) copy_async(&q[i], args.prepared.q + token * pieces + i, true);
  commit_copies();
  int first = block_first + thread / 32 * kWarpKeys;
  uint4 keys[4][4];
  if (first < end) load_keys(args.keys, token, first, end, keys);
  if (thread < args.heads) weights[thread] = args.prepared.weights[token * args.heads + thread];
  for (int i = thread; i < kFirstDigits / 4; i += kThreads) reinterpret_cast<int4*>(histogram)[i] = make_int4(0, 0, 0, 0);
  wait_for_copies<0>();
  __syncthreads();
  while (first < end) {
    float scores[4];
    score_keys(keys, q, weights, args.heads, scores);
    const int own = lane % 4, key = first + own * 8 + lane / 4;  // each lane of a quad keeps one of the four
    const float score = own == 0 ? scores[0] : own == 1 ? scores[1] : own == 2 ? scores[2] : scores[3];
    if (key < end) {
      const std::uint32_t order = order_of(score);
      selecting.orders[token * selecting.stride + key] = order;
      atomicAdd(&histogram[order >> kFirstShift], 1);
    }
    first += kStepKeys;
    if (first < end) load_keys(args.keys, token, first, end, keys);
  }
  __syncthreads();
  for (int i = thread; i < kFirstDigits; i += kThreads) {
    if (histogram[i] != 0) atomicAdd(&selecting.digits[token * kAllDigits + i], histogram[i]);
  }
}

// What a token takes of the workspace, part by part.
struct Space {
  std::int64_t stride, orders, digits, reached, chunks, q, weights, token_bytes;
};

Space space_of(const IndexSelectArgs& args) {
  const std::int64_t heads = args.q.dim(1);
  Space space{.stride = round_up(args.max_context, kSelectChunk),
              .orders = 0,
              .digits = 0,
              .reached = 0,
              .chunks = 0,
              .q = 0,
              .weights = 0,
              .token_bytes = 0};
  space.orders = space.stride * 4;
  space.digits = kAllDigits * 4;
  space.reached = 2 * sizeof(Reached);
  space.chunks = space.stride / kSelectChunk * static_cast<std::int64_t>(sizeof(ChunkCounts));
  space.q = kParts * heads * kDim * 2;
  space.weights = heads * 4;
  space.token_bytes = space.orders + space.digits + space.reached + space.chunks + space.q + space.weights;
  return space;
}

bool takes_all(const IndexSelectArgs& args) { return args.max_context <= args.selection.top_k(); }

// Tokens of a launch, so that the workspace stays modest.
std::int64_t tokens_at_once(const IndexSelectArgs& args) {
  constexpr std::int64_t kMostBytes = 128 << 20;
  return std::clamp<std::int64_t>(kMostBytes / space_of(args).token_bytes, 1, args.q.dim(0));
}

std::int64_t workspace(const IndexSelectArgs& args, int threads) {
  if (takes_all(args)) return 0;
  if (!fits_index_mma(args)) return index_select_generic().workspace_bytes(args, threads);
  return tokens_at_once(args) * space_of(args).token_bytes + 6 * 256;
}

void run(const IndexSelectArgs& args, Lane& lane) {
  const std::int64_t tokens = args.q.dim(0), heads = args.q.dim(1), top_k = args.selection.top_k();
  Selecting selecting{.positions = args.places.positions.i32(),
                      .orders = nullptr,
                      .stride = 0,
                      .digits = nullptr,
                      .reached = nullptr,
                      .chunks = nullptr,
                      .top_k = static_cast<int>(top_k),
                      .counts = args.selection.counts.i32(),
                      .selected = args.selection.positions.i32()};
  if (takes_all(args)) return select_split(selecting, tokens, args.max_context, stream_of(lane));
  if (!fits_index_mma(args)) return index_select_generic().run(args, lane);
  const Space space = space_of(args);
  const std::int64_t at_once = tokens_at_once(args);
  std::byte* free = lane.workspace;
  const auto take = [&](std::int64_t token_bytes) {
    std::byte* const taken = free;
    free += round_up(at_once * token_bytes, 256);
    return taken;
  };
  selecting.stride = space.stride;
  selecting.orders = reinterpret_cast<std::uint32_t*>(take(space.orders));
  selecting.digits = reinterpret_cast<std::int32_t*>(take(space.digits));
  selecting.reached = reinterpret_cast<Reached*>(take(space.reached));
  selecting.chunks = reinterpret_cast<ChunkCounts*>(take(space.chunks));
  const Prepared prepared{.q = reinterpret_cast<uint4*>(take(space.q)), .weights = reinterpret_cast<float*>(take(space.weights))};
  Scoring scoring{.prepared = prepared,
                  .keys = device_cache(args.keys, args.places),
                  .heads = static_cast<int>(heads),
                  .block_keys = 0,
                  .selecting = selecting};
  allow_shared(index_scores_split_kernel, space.q);
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    const std::int64_t some = std::min(at_once, tokens - first);
    // As many blocks as run at a time, where the keys make so many: each of them reads all queries.
    const std::int64_t steps = std::clamp<std::int64_t>(blocks_for(some * args.max_context, kStepKeys * kBlocks), 1, 8);
    scoring.block_keys = static_cast<int>(steps * kStepKeys);
    launch(prepare_kernel, static_cast<unsigned>(some), kPrepareThreads, 0, stream_of(lane), args.q.f32() + first * heads * kDim,
           args.weights.f32() + first * heads, args.scale, scoring.heads, prepared, scoring.selecting);
    const dim3 grid(blocks_for(args.max_context, scoring.block_keys), static_cast<unsigned>(some));
    launch(index_scores_split_kernel, grid, kThreads, space.q, stream_of(lane), scoring);
    select_split(scoring.selecting, some, args.max_context, stream_of(lane));
    scoring.keys.table += some * scoring.keys.table_width;
    scoring.keys.positions += some;
    scoring.selecting.positions += some;
    scoring.selecting.counts += some;
    scoring.selecting.selected += some * top_k;
  }
}

constexpr std::int64_t kSharedBytes = kParts * kMostIndexHeads * kDim * 2 + kFirstDigits * 4 + kMostIndexHeads * 4;
static_assert(kSharedBytes <= kPortableSharedBytes);

}  // namespace

Kernel<IndexSelectArgs> index_select_split() { return {"index_select.split.cuda", supports_any<kPortableSharedBytes>, workspace, run}; }

}  // namespace reckoner::cuda
