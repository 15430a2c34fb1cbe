// attend_latent for up to eight heads on BF16 rows of 512 + 64 elements, through the matrix instruction: what a rank of a model that is
// spread over several GPUs has. A block takes all heads of a token and some of its keys, whose rows it gathers into shared memory tiles
// ahead; they serve as keys and as values. The heads are the narrow side of the products. Queries and weights are two BF16 numbers each,
// off by 2^-16: a thousandth of what the bound on float sums of 576 terms allows.
//
// Keys are cut into units, and weights are powers of two relative to an integer no smaller than the unit's largest score: then rescaling is
// exact, and the sums of eight units can be added up by one block or by the launch that combines blocks, with the same bits. Few tokens get
// a block a unit, many a block eight units.
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/split.cuh"
#include "kernels/cuda/common/cache.cuh"
#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kLatent = 512, kWidth = 576;
constexpr int kHeads = 8;
constexpr int kKeys = 32;      // a tile
constexpr int kThreads = 256;  // a warp for each head's softmax, and for 64 columns of the values
constexpr int kParts = 2;
constexpr int kRowStride = kWidth + 8;  // in shared memory: rows then begin in different banks
constexpr int kSlices = 4;              // of the 576 columns, while scoring: a warp has a slice and half of the keys
constexpr int kSliceSteps = kWidth / 16 / kSlices;
constexpr int kStages = 2;
constexpr int kUnitKeys = 64;    // at least
constexpr int kUnitsOfMany = 8;  // a block, where there are many tokens

struct Shared {
  std::uint16_t rows[kStages][kKeys][kRowStride];
  float scores[kSlices][kKeys][kHeads + 1];
  std::uint16_t weights[kParts][kHeads][kKeys + 8];
  float factors[kHeads];                      // of the unit's sums so far
  float total_factors[kHeads], ends[kHeads];  // where a unit ends: of the block's sums so far, of the unit's
};
static_assert(sizeof(Shared) <= kPortableSharedBytes);

struct Gather {
  const float* q;  // [tokens, heads, 576]
  DeviceCache cache;
  const std::int32_t* counts;    // [tokens], or null: everything up to the token
  const std::int32_t* selected;  // [tokens, top_k]
  std::int64_t top_k;
  float scale;  // and to base two
  int heads;
  int unit_keys, units_each;  // of a block
  float* y;                   // [tokens, heads, 512]
};

// ---- exact rescaling ----

// 2^d for an integer d <= 0, zero where that is no normal number.
__device__ float power_of_two(float d) { return d < -126.0f ? 0.0f : __int_as_float((127 + static_cast<int>(d)) << 23); }

// Sums relative to a power of two.
struct Softmax {
  float largest = -INFINITY, sum = 0;
};

// The largest of a warp's scores that are numbers.
__device__ float largest_of_warp(float score) {
  const int bits = __float_as_int(isnan(score) ? -INFINITY : score);
  const int order = __reduce_max_sync(kAllLanes, bits ^ (bits >> 31 & 0x7fffffff));
  return __int_as_float(order ^ (order >> 31 & 0x7fffffff));
}

// ---- rows ----

// Of a block: its token and its keys.
struct Keys {
  int token, begin, end;
};

// A warp fetches four rows of a tile; lane l knows the one of l % 4: its position (-1: none), then its address (null: none).
__device__ int find_position(const Gather& args, const Keys& keys, int tile) {
  const int key = keys.begin + tile * kKeys + static_cast<int>(threadIdx.x) / 32 * 4 + static_cast<int>(threadIdx.x) % 4;
  if (args.counts == nullptr) return key < keys.end ? key : -1;
  // Read before it is known how many there are.
  const int position = key < args.top_k ? args.selected[keys.token * args.top_k + key] : -1;
  return key < keys.end ? position : -1;
}
__device__ const std::byte* find_row(const Gather& args, const Keys& keys, int position) {
  return position < 0 ? nullptr : cache_row(args.cache, keys.token, position);
}

__device__ void fetch_rows(const Gather& args, const std::byte* own, std::uint16_t (&rows)[kKeys][kRowStride]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto* row = reinterpret_cast<const std::byte*>(__shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(own), i));
    const bool there = row != nullptr;
    if (!there) row = args.cache.base;
#pragma unroll
    for (int first = 0; first < kWidth / 8; first += 32) {
      const int piece = first + lane;
      if (piece < kWidth / 8) copy_async(&rows[warp * 4 + i][piece * 8], row + piece * 16, there);
    }
  }
}

// ---- scores ----

// The warp's part of q as operands: its slice of the columns of all heads.
__device__ void load_query(const Gather& args, int token, std::uint32_t (&q)[kSliceSteps][kParts][2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, slice = static_cast<int>(threadIdx.x) / 64, g = lane / 4, t = lane % 4;
  const float* row = args.q + (std::int64_t{token} * args.heads + g) * kWidth + slice * kSliceSteps * 16 + t * 2;
#pragma unroll
  for (int step = 0; step < kSliceSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float2 pair = make_float2(0, 0);
      if (g < args.heads) pair = *reinterpret_cast<const float2*>(row + step * 16 + i * 8);
      std::uint32_t parts[kParts];
      split_pair<kParts>(pair.x, pair.y, parts);
#pragma unroll
      for (int part = 0; part < kParts; ++part) q[step][part][i] = parts[part];
    }
  }
}

__device__ void score_slice(const std::uint32_t (&q)[kSliceSteps][kParts][2], int stage, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int slice = warp / 2, first_key = warp % 2 * 16;
  float sums[2][4] = {};  // of even steps and of odd ones
  const std::uint16_t* row = &shared.rows[stage][first_key + lane % 16][slice * kSliceSteps * 16 + lane / 16 * 8];
#pragma unroll
  for (int step = 0; step < kSliceSteps; ++step) {
    std::uint32_t keys[4];
    load_matrices(keys, row + step * 16);
#pragma unroll
    for (int part = kParts - 1; part >= 0; --part)
      mma_bf16(sums[step % 2], keys[0], keys[1], keys[2], keys[3], q[step][part][0], q[step][part][1]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) shared.scores[slice][first_key + g + i / 2 * 8][t * 2 + i % 2] = sums[0][i] + sums[1][i];
}

// What a tile does to the sums of a head.
struct Step {
  float weight;             // of the lane's key
  float factor;             // of the unit's sums so far
  float total_factor, end;  // where the unit ends with the tile: of the block's sums so far, of the unit's
};

// A warp has a head and a lane a key of the tile, of which `count` exist. `ends`: with this tile the unit does.
__device__ Step weigh(float scale, int count, bool ends, Softmax& unit, Softmax& all, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, head = static_cast<int>(threadIdx.x) / 32;
  float score = 0;
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) score += shared.scores[slice][lane][head];
  score = lane < count ? score * scale : -INFINITY;
  const float largest = fmaxf(unit.largest, ceilf(largest_of_warp(score)));
  Step step{.weight = lane < count ? exp2f(score - largest) : 0.0f, .factor = power_of_two(unit.largest - largest)};
  unit.largest = largest;
  float rest = step.weight;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const std::uint32_t bits = __float_as_uint(rest) & 0xffff0000u;
    shared.weights[part][head][lane] = static_cast<std::uint16_t>(bits >> 16);
    rest -= __uint_as_float(bits);
  }
  if (lane == 0) shared.factors[head] = step.factor;
  if (!ends) return step;
  const float both = fmaxf(all.largest, unit.largest);
  step.total_factor = power_of_two(all.largest - both);
  step.end = power_of_two(unit.largest - both);
  all.largest = both;
  unit.largest = -INFINITY;
  if (lane == 0) shared.total_factors[head] = step.total_factor, shared.ends[head] = step.end;
  return step;
}

// Apart from weigh(): nobody waits for it.
__device__ void add_weights(const Step& step, bool ends, Softmax& unit, Softmax& all) {
  unit.sum = unit.sum * step.factor + warp_sum(step.weight);
  if (!ends) return;
  all.sum = all.sum * step.total_factor + unit.sum * step.end;
  unit.sum = 0;
}

// ---- values ----

// Sums of a warp's 64 columns, sixteen a tile: columns g and g + 8 of the heads 2t and 2t + 1.
using Sums = float[4][4];

__device__ void add_values(int stage, const Shared& shared, Sums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const float low = shared.factors[2 * t], high = shared.factors[2 * t + 1];
#pragma unroll
  for (float(&tile)[4] : sums) tile[0] *= low, tile[1] *= high, tile[2] *= low, tile[3] *= high;
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    std::uint32_t p[kParts][2];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < 2; ++i) p[part][i] = *reinterpret_cast<const std::uint32_t*>(&shared.weights[part][g][step * 16 + t * 2 + i * 8]);
    }
    const std::uint16_t* row = &shared.rows[stage][step * 16 + lane / 16 * 8 + lane % 8][warp * 64 + lane / 8 % 2 * 8];
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
      std::uint32_t values[4];
      load_matrices_transposed(values, row + tile * 16);
#pragma unroll
      for (int part = kParts - 1; part >= 0; --part)
        mma_bf16(sums[tile], values[0], values[1], values[2], values[3], p[part][0], p[part][1]);
    }
  }
}

// Adds a unit's sums to the block's, and begins the next unit.
__device__ void end_unit(const Shared& shared, Sums& sums, Sums& totals) {
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      totals[tile][i] = totals[tile][i] * shared.total_factors[2 * t + i % 2] + sums[tile][i] * shared.ends[2 * t + i % 2];
      sums[tile][i] = 0;
    }
  }
}

// Calls body(head, column, sum) for each sum of the thread.
template <class Body>
__device__ void for_sums(const Sums& totals, const Body& body) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) body(lane % 4 * 2 + i % 2, warp * 64 + tile * 16 + lane / 4 + i / 2 * 8, totals[tile][i]);
  }
}

// Grid: blocks of a token, tokens.
__global__ void __launch_bounds__(kThreads, 2)
    attend_latent_gather_kernel(const __grid_constant__ Gather args, const __grid_constant__ Partials partials) {
  if (gridDim.x * gridDim.y <= 132) let_next_begin();
  wait_for_previous();
  unsigned char* const memory = dynamic_shared<unsigned char>();
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, token = static_cast<int>(blockIdx.y);
  const int count = args.counts != nullptr ? args.counts[token] : args.cache.positions[token] + 1;
  const int block_keys = args.units_each * args.unit_keys, begin = static_cast<int>(blockIdx.x) * block_keys;
  const Keys keys{.token = token, .begin = begin, .end = min(begin + block_keys, count)};
  int positions[kStages + 2];
#pragma unroll
  for (int i = 0; i < kStages + 2; ++i) positions[i] = find_position(args, keys, i);
  if (keys.begin >= keys.end) return;
  const int tiles = (keys.end - begin + kKeys - 1) / kKeys, unit_tiles = args.unit_keys / kKeys;
  const std::byte* rows[kStages + 1];
#pragma unroll
  for (int i = 0; i < kStages + 1; ++i) rows[i] = find_row(args, keys, positions[i]);
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    fetch_rows(args, rows[i], shared.rows[i]);
    commit_copies();
  }
  const std::byte* next_row = rows[kStages];
  int next_position = positions[kStages + 1];
  std::uint32_t q[kSliceSteps][kParts][2];
  load_query(args, token, q);
  Softmax unit, all;
  Sums sums = {}, totals = {};
  int stage = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile == 0) {
      wait_for_copies<kStages - 1>();
    } else {
      wait_for_copies<kStages - 2>();
    }
    __syncthreads();
    if (tile > 0) {  // into the place of the tile before, which nobody reads any more
      fetch_rows(args, next_row, shared.rows[stage == 0 ? kStages - 1 : stage - 1]);
      commit_copies();
      next_row = find_row(args, keys, next_position);
      next_position = find_position(args, keys, tile + kStages + 1);
    }
    score_slice(q, stage, shared);
    __syncthreads();
    const bool ends = (tile + 1) % unit_tiles == 0 || tile + 1 == tiles;
    const Step step = weigh(args.scale, keys.end - begin - tile * kKeys, ends, unit, all, shared);
    __syncthreads();
    add_values(stage, shared, sums);
    add_weights(step, ends, unit, all);
    if (ends) end_unit(shared, sums, totals);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  let_next_begin();
  const auto partial = [&](int head) { return (std::int64_t{token} * args.heads + head) * gridDim.x + blockIdx.x; };
  for_sums(totals, [&](int head, int column, float sum) {
    if (head < args.heads) partials.sums[partial(head) * kLatent + column] = sum;
  });
  if (lane == 0 && warp < args.heads) partials.maxima[partial(warp)] = all.largest, partials.weights[partial(warp)] = all.sum;
}

constexpr int kCombineThreads = 128;  // a column each
constexpr int kAtOnce = 32;           // of what blocks left, that a thread has under way
static_assert(kMostPieces == 2 * kAtOnce && kAtOnce % kUnitsOfMany == 0, "a lane has two pieces");

// Grid: heads, tokens, parts of the columns. Adds up what the blocks left, in their order, but eight units first. kUnits: a block is one.
template <bool kUnits>
__global__ void __launch_bounds__(kCombineThreads)
    combine_units_kernel(const __grid_constant__ Gather args, const __grid_constant__ Partials partials, int blocks) {
  begin_kernel();
  constexpr int kLoads = kUnits ? kAtOnce : kMostPieces / kUnitsOfMany;
  __shared__ __align__(16) float2 shared[kMostPieces];  // factors, weights
  const std::int64_t head = blockIdx.x, token = blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, column = static_cast<int>(blockIdx.z) * kCombineThreads + thread;
  const std::int64_t first = (token * args.heads + head) * blocks;
  const float* at = partials.sums + first * kLatent + column;
  float values[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) values[i] = i < blocks ? at[i * kLatent] : 0.0f;
  float maxima[2], weight = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) maxima[i] = lane + 32 * i < blocks ? partials.maxima[first + lane + 32 * i] : -INFINITY;
  if (thread < blocks) weight = partials.weights[first + thread];
  const int count = args.counts != nullptr ? args.counts[token] : args.cache.positions[token] + 1;
  const int block_keys = args.units_each * args.unit_keys, parts = min((count + block_keys - 1) / block_keys, blocks);
#pragma unroll
  for (int i = 0; i < 2; ++i) maxima[i] = lane + 32 * i < parts ? maxima[i] : -INFINITY;  // beyond may stand anything
  const float largest = warp_max(fmaxf(maxima[0], maxima[1]));
  if (thread < kMostPieces) {
    const float factor = thread < parts ? power_of_two((thread < 32 ? maxima[0] : maxima[1]) - largest) : 0.0f;
    shared[thread] = make_float2(factor, thread < parts ? weight * factor : 0.0f);
  }
  __syncthreads();
  float sum = 0, all = 0;
  for (int begin = 0; begin < parts; begin += kLoads) {
    if (begin > 0) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) values[i] = begin + i < parts ? at[std::int64_t{begin + i} * kLatent] : 0.0f;
    }
    constexpr int kInner = kUnits ? kUnitsOfMany : 1;
#pragma unroll
    for (int i = 0; i < kLoads; i += kInner) {
      float units = 0, weights = 0;
#pragma unroll
      for (int j = 0; j < kInner; ++j) {
        const float2 own = shared[begin + i + j];
        units += begin + i + j < parts ? values[i + j] * own.x : 0.0f;
        weights += own.y;
      }
      sum += units;
      all += weights;
    }
  }
  args.y[(token * args.heads + head) * kLatent + column] = parts == 0 ? 0.0f : sum / all;
}

std::int64_t attended_keys(const AttendLatentArgs& args) {
  return args.selection.counts.shape.rank() != 0 ? std::min(args.selection.top_k(), args.max_context) : args.max_context;
}
// Depends on the shape of a token only.
Split unit_split(const AttendLatentArgs& args) { return split_keys(attended_keys(args), kUnitKeys, kMostPieces); }

constexpr std::int64_t kFewTokens = 24;  // with a block a unit
int units_each(std::int64_t tokens) { return tokens <= kFewTokens ? 1 : kUnitsOfMany; }

// As the workspace sees it: a block's sums as a piece's.
Split block_split(const AttendLatentArgs& args, int units) {
  const Split split = unit_split(args);
  return {.pieces = (split.pieces + units - 1) / units, .length = split.length * units};
}

Gather gather_of(const AttendLatentArgs& args) {
  Gather gather{.q = args.q.f32(),
                .cache = device_cache(args.cache, args.places),
                .counts = nullptr,
                .selected = nullptr,
                .top_k = 0,
                .scale = static_cast<float>(static_cast<double>(args.scale) * 1.4426950408889634),
                .heads = static_cast<int>(args.q.dim(1)),
                .unit_keys = static_cast<int>(unit_split(args).length),
                .units_each = units_each(args.q.dim(0)),
                .y = args.y.f32()};
  if (args.selection.counts.shape.rank() != 0) {
    gather.counts = args.selection.counts.i32();
    gather.selected = args.selection.positions.i32();
    gather.top_k = args.selection.top_k();
  }
  return gather;
}

}  // namespace

bool fits_latent_gather(const AttendLatentArgs& args) { return fits_latent_mma(args) && args.q.dim(1) <= kHeads; }

std::int64_t latent_gather_workspace(const AttendLatentArgs& args) {
  const std::int64_t token_bytes = partial_bytes(args.q.dim(1), kLatent, block_split(args, units_each(args.q.dim(0))));
  return tokens_at_once(args.q.dim(0), token_bytes) * token_bytes;
}

void run_attend_latent_gather(const AttendLatentArgs& args, Lane& lane) {
  const std::int64_t tokens = args.q.dim(0), heads = args.q.dim(1);
  Gather gather = gather_of(args);
  const Split split = block_split(args, gather.units_each);
  allow_shared(attend_latent_gather_kernel, sizeof(Shared));
  const std::int64_t at_once = tokens_at_once(tokens, partial_bytes(heads, kLatent, split));
  const Partials partials = partials_in(lane.workspace, at_once, heads, kLatent, split);
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    const auto some = static_cast<unsigned>(std::min(at_once, tokens - first));
    launch(attend_latent_gather_kernel, dim3(static_cast<unsigned>(split.pieces), some), kThreads, sizeof(Shared), stream_of(lane), gather,
           partials);
    launch(gather.units_each == 1 ? combine_units_kernel<true> : combine_units_kernel<false>,
           dim3(static_cast<unsigned>(heads), some, kLatent / kCombineThreads), kCombineThreads, 0, stream_of(lane), gather, partials,
           static_cast<int>(split.pieces));
    gather.q += some * heads * kWidth;
    gather.y += some * heads * kLatent;
    gather.cache.table += some * gather.cache.table_width;
    gather.cache.positions += some;
    if (gather.counts == nullptr) continue;
    gather.counts += some;
    gather.selected += some * gather.top_k;
  }
}

}  // namespace reckoner::cuda
