// index_select for BF16 keys of 128 elements (what all published models have) and a context beyond top_k: a launch scores keys through the
// matrix instruction, where many blocks select it also counts the scores' first digits; then one block of a token selects
// (select_bins), or in a few launches many do (select_split). A warp takes 32 keys straight from memory; a block makes operands of the
// queries itself. Queries are two BF16 numbers each, off by 2^-18: a tenth of what the bound on float sums of 128 terms allows.
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/index_scores.cuh"
#include "kernels/cuda/attention/select_split.cuh"
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
  int heads, block_keys;
  Selecting selecting;
};

// So that what a warp reads at once is in different banks.
__device__ int place_of(int head, int piece) { return head * kPieces + (piece ^ (head & 1) << 2); }

// A pair as two, each rounded to nearest.
__device__ void round_parts(float low, float high, std::uint32_t& first, std::uint32_t& second) {
  first = round_pair(low, high);
  second = round_pair(low - bf16_to_float(first & 0xffffu), high - __uint_as_float(first & 0xffff0000u));
}

// Keys g, g + 8, g + 16 and g + 24 of the 32 from `first` on, which lie in one page, there from `at` on.
__device__ void load_keys(const DeviceCache& keys, const std::byte* at, int first, int end, uint4 (&to)[4][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const std::byte* row = at + g * keys.row_bytes + t * 16;
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

constexpr int kAhead = 4;  // pieces of the queries that a thread loads at once: all of 32 heads

__device__ void load_query(const Scoring& args, std::int64_t token, int begin, int pieces, float4 (&query)[kAhead][2]) {
  const auto* from = reinterpret_cast<const float4*>(args.q + token * pieces * 8);
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    const int i = begin + j * kThreads;
    if (i < pieces) query[j][0] = from[2 * i], query[j][1] = from[2 * i + 1];
  }
}

// kCounts: of the scores' first digits; the later ones are cleared.
template <bool kCounts>
__global__ void __launch_bounds__(kThreads, 4) index_scores_split_kernel(const __grid_constant__ Scoring args) {
  if (gridDim.x * gridDim.y <= 132) let_next_begin();
  wait_for_previous();
  uint4* const q = dynamic_shared<uint4>();  // [kParts, heads, kPieces]
  __shared__ float weights[kMostIndexHeads];
  __shared__ __align__(16) std::int32_t histogram[kCounts ? kFirstDigits : 4];
  const Selecting& selecting = args.selecting;
  const std::int64_t token = blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, pieces = args.heads * kPieces;
  float4 query[kAhead][2];  // on its way before it is known where the token stands
  load_query(args, token, thread, pieces, query);
  const int block_first = static_cast<int>(blockIdx.x) * args.block_keys;
  int first = block_first + thread / 32 * kWarpKeys;
  // Where there are few keys their page too is asked for at once: beyond the token's position it is any number, and not used.
  const bool early = !kCounts && first < args.keys.table_width * kPageTokens;
  const std::int64_t page = early ? args.keys.table[token * args.keys.table_width + first / kPageTokens] : 0;
  const int context = args.keys.positions[token] + 1;
  if (context <= selecting.top_k || block_first >= context) return;
  const int end = min(block_first + args.block_keys, context);
  uint4 keys[4][4];
  if (first < end) {
    const std::byte* const at = early ? args.keys.base + page * args.keys.page_bytes + first % kPageTokens * args.keys.row_bytes
                                      : cache_row(args.keys, token, first);
    load_keys(args.keys, at, first, end, keys);
  }
  for (int begin = thread; begin < pieces; begin += kAhead * kThreads) {
    if (begin != thread) load_query(args, token, begin, pieces, query);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int i = begin + j * kThreads;
      if (i >= pieces) continue;
      const float4 low = query[j][0], high = query[j][1];
      uint4 parts[kParts];
      round_parts(low.x, low.y, parts[0].x, parts[1].x);
      round_parts(low.z, low.w, parts[0].y, parts[1].y);
      round_parts(high.x, high.y, parts[0].z, parts[1].z);
      round_parts(high.z, high.w, parts[0].w, parts[1].w);
#pragma unroll
      for (int part = 0; part < kParts; ++part) q[part * pieces + place_of(i / kPieces, i % kPieces)] = parts[part];
    }
  }
  if constexpr (kCounts) {
    for (int i = thread; i < kFirstDigits / 4; i += kThreads) reinterpret_cast<int4*>(histogram)[i] = make_int4(0, 0, 0, 0);
    if (blockIdx.x == 0) {
      for (int i = thread; i < kLaterDigits; i += kThreads) selecting.digits[token * kLaterDigits + i] = 0;
    }
  }
  if (thread < args.heads) weights[thread] = args.weights[token * args.heads + thread] * args.scale;
  __syncthreads();
  while (first < end) {
    float scores[4];
    score_keys(keys, q, weights, args.heads, scores);
    const int own = lane % 4, key = first + own * 8 + lane / 4;  // each lane of a quad keeps one of the four
    const float score = own == 0 ? scores[0] : own == 1 ? scores[1] : own == 2 ? scores[2] : scores[3];
    if (key < end) {
      const std::uint32_t order = order_of(score);
      selecting.orders[token * selecting.stride + key] = order;
      if constexpr (kCounts) atomicAdd(&histogram[order >> kFirstShift], 1);
    }
    first += kStepKeys;
    if (first < end) load_keys(args.keys, cache_row(args.keys, token, first), first, end, keys);
  }
  let_next_begin();
  if constexpr (kCounts) {
    __syncthreads();
    for (int i = thread; i < kFirstDigits; i += kThreads) {
      if (histogram[i] != 0) atomicAdd(&selecting.first_digits[token * kFirstDigits + i], histogram[i]);
    }
  }
}

// Counts of the first digits of so many tokens are kept zero from call to call, so that no launch need clear them. What runs on a device
// runs one after the other.
constexpr std::int64_t kKeptTokens = 16;
__device__ std::int32_t kept_digits[kKeptTokens * kFirstDigits];

std::int32_t* kept_digits_of_device() {
  void* at = nullptr;
  static_cast<void>(cudaGetSymbolAddress(&at, kept_digits));
  return static_cast<std::int32_t*>(at);
}

constexpr int kClearThreads = 256;

__global__ void __launch_bounds__(kClearThreads) clear_kernel(int4* counts) {
  begin_kernel();
  counts[std::int64_t{blockIdx.x} * kClearThreads + threadIdx.x] = make_int4(0, 0, 0, 0);
}

bool takes_all(const IndexSelectArgs& args) { return args.max_context <= args.selection.top_k(); }
bool one_block_selects(const IndexSelectArgs& args) { return args.max_context <= kMostBinScores; }

// What a token takes of the workspace, part by part.
struct Space {
  std::int64_t stride, orders, first_digits, digits, reached, chunks;
  std::int64_t token_bytes() const { return orders + first_digits + digits + reached + chunks; }
};

Space space_of(const IndexSelectArgs& args) {
  Space space{.stride = round_up(args.max_context, kSelectChunk), .orders = 0, .first_digits = 0, .digits = 0, .reached = 0, .chunks = 0};
  space.orders = space.stride * 4;
  if (one_block_selects(args)) return space;
  space.first_digits = kFirstDigits * 4;
  space.digits = kLaterDigits * 4;
  space.reached = 2 * sizeof(Reached);
  space.chunks = space.stride / kSelectChunk * static_cast<std::int64_t>(sizeof(ChunkCounts));
  return space;
}

// Tokens of a launch, so that the workspace stays modest.
std::int64_t tokens_at_once(const IndexSelectArgs& args) {
  constexpr std::int64_t kMostBytes = 128 << 20;
  return std::clamp<std::int64_t>(kMostBytes / space_of(args).token_bytes(), 1, args.q.dim(0));
}

std::int64_t workspace(const IndexSelectArgs& args, int threads) {
  if (takes_all(args)) return 0;
  if (!fits_index_mma(args)) return index_select_generic().workspace_bytes(args, threads);
  return tokens_at_once(args) * space_of(args).token_bytes() + 5 * 256;
}

Scoring scoring_in(const IndexSelectArgs& args, std::byte* workspace) {
  const Space space = space_of(args);
  const std::int64_t at_once = tokens_at_once(args);
  const auto take = [&](std::int64_t token_bytes) {
    std::byte* const taken = workspace;
    workspace += round_up(at_once * token_bytes, 256);
    return taken;
  };
  Scoring scoring{.q = args.q.f32(),
                  .weights = args.weights.f32(),
                  .scale = args.scale,
                  .keys = device_cache(args.keys, args.places),
                  .heads = static_cast<int>(args.q.dim(1)),
                  .block_keys = 0,
                  .selecting = {.positions = args.places.positions.i32(),
                                .orders = reinterpret_cast<std::uint32_t*>(take(space.orders)),
                                .stride = space.stride,
                                .first_digits = reinterpret_cast<std::int32_t*>(take(space.first_digits)),
                                .digits = reinterpret_cast<std::int32_t*>(take(space.digits)),
                                .reached = reinterpret_cast<Reached*>(take(space.reached)),
                                .chunks = reinterpret_cast<ChunkCounts*>(take(space.chunks)),
                                .top_k = static_cast<int>(args.selection.top_k()),
                                .counts = args.selection.counts.i32(),
                                .selected = args.selection.positions.i32()}};
  return scoring;
}

// Of some tokens, which stand first in `scoring`.
void score_and_select(const IndexSelectArgs& args, const Scoring& scoring, std::int64_t tokens, cudaStream_t stream) {
  const std::size_t shared = kParts * static_cast<std::size_t>(scoring.heads) * kDim * 2;
  const dim3 grid(blocks_for(args.max_context, scoring.block_keys), static_cast<unsigned>(tokens));
  if (one_block_selects(args)) {
    allow_shared(index_scores_split_kernel<false>, static_cast<std::int64_t>(shared));
    launch(index_scores_split_kernel<false>, grid, kThreads, shared, stream, scoring);
    return select_bins(scoring.selecting, tokens, args.max_context, stream);
  }
  allow_shared(index_scores_split_kernel<true>, static_cast<std::int64_t>(shared));
  launch(index_scores_split_kernel<true>, grid, kThreads, shared, stream, scoring);
  select_split(scoring.selecting, tokens, args.max_context, stream);
}

void run(const IndexSelectArgs& args, Lane& lane) {
  if (!takes_all(args) && !fits_index_mma(args)) return index_select_generic().run(args, lane);
  const std::int64_t tokens = args.q.dim(0);
  Scoring scoring = scoring_in(args, lane.workspace);
  if (takes_all(args)) return select_split(scoring.selecting, tokens, args.max_context, stream_of(lane));
  const std::int64_t at_once = tokens_at_once(args);
  if (at_once <= kKeptTokens) {
    scoring.selecting.first_digits = kept_digits_of_device();
  } else if (!one_block_selects(args)) {
    launch(clear_kernel, static_cast<unsigned>(at_once * kFirstDigits / 4 / kClearThreads), kClearThreads, 0, stream_of(lane),
           reinterpret_cast<int4*>(scoring.selecting.first_digits));
  }
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    const std::int64_t some = std::min(at_once, tokens - first);
    // As many blocks as run at a time, where the keys make so many: each of them reads all queries.
    const std::int64_t steps = std::clamp<std::int64_t>(blocks_for(some * args.max_context, kStepKeys * kBlocks), 1, 8);
    scoring.block_keys = static_cast<int>(steps * kStepKeys);
    score_and_select(args, scoring, some, stream_of(lane));
    scoring.q += some * scoring.heads * kDim;
    scoring.weights += some * scoring.heads;
    scoring.keys.table += some * scoring.keys.table_width;
    scoring.keys.positions += some;
    scoring.selecting.positions += some;
    scoring.selecting.counts += some;
    scoring.selecting.selected += some * scoring.selecting.top_k;
  }
}

}  // namespace

Kernel<IndexSelectArgs> index_select_split() { return {"index_select.split.cuda", supports_any<kPortableSharedBytes>, workspace, run}; }

}  // namespace reckoner::cuda
