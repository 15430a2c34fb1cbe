// attend_latent for up to eight heads on BF16 rows of 512 + 64 elements, through the matrix instruction: what a rank of a model that is
// spread over several GPUs has. A block takes all heads of a token and some of its keys, whose rows it gathers into shared memory tiles
// ahead; they serve as keys and as values. The heads are the narrow side of the products. Queries and weights are two BF16 numbers each,
// off by 2^-16: a thousandth of what the bound on float sums of 576 terms allows.
//
// Keys are cut into units, and weights are powers of two relative to an integer no smaller than the unit's largest score: then rescaling is
// exact, and sums of units can be added up by one block or by four, with the same bits. Few tokens get a block a unit, many a block four
// units. Where there are clusters the blocks of a token are one, which puts its sums together; else they leave them in the workspace.
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/split.cuh"
#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/cache.cuh"
#include "kernels/cuda/common/cluster.cuh"
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
constexpr int kUnitKeys = 128;                                                // at least
constexpr int kUnitsOfMany = 4;                                               // a block, where there are many tokens
constexpr unsigned kFewBlocks = 16, kManyBlocks = kFewBlocks / kUnitsOfMany;  // of a cluster

template <int kStages>
struct Shared {
  std::uint16_t rows[kStages][kKeys][kRowStride];
  float scores[kSlices][kKeys][kHeads + 1];
  std::uint16_t weights[kParts][kHeads][kKeys + 8];
  float factors[kHeads];                          // of the unit's sums so far
  float total_factors[kHeads], ends[kHeads];      // where a unit ends: of the block's sums so far, of the unit's
  float maxima[kHeads], sums_of_weights[kHeads];  // that the block leaves
};
// What a block leaves, in the place of the rows.
struct Left {
  float sums[kHeads][kLatent + 4];
};
static_assert(sizeof(Shared<2>) <= kPortableSharedBytes && sizeof(Left) <= sizeof(Shared<2>::rows));

struct Gather {
  const float* q;  // [tokens, heads, 576]
  DeviceCache cache;
  const std::int32_t* counts;    // [tokens], or null: everything up to the token
  const std::int32_t* selected;  // [tokens, top_k]
  std::int64_t top_k;
  float scale;  // and to base two
  int heads;
  int unit_keys, units_each;  // of a block
  float* y;                   // [tokens, heads, 512]: written by clusters
};

// ---- exact rescaling ----

// 2^d for an integer d <= 0, zero where that is no normal number.
__device__ float power_of_two(float d) { return d < -126.0f ? 0.0f : __int_as_float((127 + static_cast<int>(d)) << 23); }

// Sums relative to a power of two.
struct Softmax {
  float largest = -INFINITY, sum = 0;
};

// Adds up parts in their order, units of four first: `part(s)` of s < parts. factors: lane l has those of l and of l + 32.
template <class Part>
__device__ float fold(int parts, int units_each, const float (&factors)[2], const Part& part) {
  float sum = 0;
#pragma unroll 2
  for (int first = 0; first < parts; first += kUnitsOfMany) {
    float four[kUnitsOfMany];
#pragma unroll
    for (int i = 0; i < kUnitsOfMany; ++i) four[i] = part(min(first + i, parts - 1));
#pragma unroll
    for (int i = 0; i < kUnitsOfMany; ++i) {
      const float factor = __shfl_sync(kAllLanes, first + i < 32 ? factors[0] : factors[1], (first + i) % 32);
      four[i] = first + i < parts ? four[i] * factor : 0.0f;
    }
    if (units_each == 1) {
      sum += ((four[0] + four[1]) + four[2]) + four[3];
    } else {
#pragma unroll
      for (const float one : four) sum += one;
    }
  }
  return sum;
}

// The factors of the parts of a head and the sum of its weights. Lane l reads `maximum` and `weight` of l and of l + 32.
template <class Maximum, class Weight>
__device__ float find_factors(int parts, int units_each, const Maximum& maximum, const Weight& weight, float (&factors)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float maxima[2], weights[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool there = lane + 32 * i < parts;
    maxima[i] = there ? maximum(lane + 32 * i) : -INFINITY;
    weights[i] = there ? weight(lane + 32 * i) : 0.0f;
  }
  const float largest = warp_max(fmaxf(maxima[0], maxima[1]));
#pragma unroll
  for (int i = 0; i < 2; ++i) factors[i] = lane + 32 * i < parts ? power_of_two(maxima[i] - largest) : 0.0f;
  return fold(parts, units_each, factors, [&](int s) { return __shfl_sync(kAllLanes, s < 32 ? weights[0] : weights[1], s % 32); });
}

// ---- rows ----

// Of a block: its token and its keys.
struct Keys {
  int token, begin, end;
};

// A warp fetches four rows of a tile; lane l knows the one of l % 4: its position (-1: none), then its address (null: none).
__device__ int find_position(const Gather& args, const Keys& keys, int tile) {
  const int key = keys.begin + tile * kKeys + static_cast<int>(threadIdx.x) / 32 * 4 + static_cast<int>(threadIdx.x) % 4;
  if (key >= keys.end) return -1;
  return args.counts != nullptr ? args.selected[keys.token * args.top_k + key] : key;
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

template <int kStages>
__device__ void score_slice(const std::uint32_t (&q)[kSliceSteps][kParts][2], int stage, Shared<kStages>& shared) {
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

// A warp has a head and a lane a key of the tile, of which `count` exist. `ends`: with this tile the unit does.
template <int kStages>
__device__ void weigh(float scale, int count, bool ends, Softmax& unit, Softmax& all, Shared<kStages>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, head = static_cast<int>(threadIdx.x) / 32;
  float score = 0;
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) score += shared.scores[slice][lane][head];
  score = lane < count ? score * scale : -INFINITY;
  const float largest = fmaxf(unit.largest, ceilf(warp_max(score)));
  const float factor = power_of_two(unit.largest - largest);
  const float weight = lane < count ? exp2f(score - largest) : 0.0f;
  unit = {.largest = largest, .sum = unit.sum * factor + warp_sum(weight)};
  float rest = weight;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const std::uint32_t bits = __float_as_uint(rest) & 0xffff0000u;
    shared.weights[part][head][lane] = static_cast<std::uint16_t>(bits >> 16);
    rest -= __uint_as_float(bits);
  }
  if (lane == 0) shared.factors[head] = factor;
  if (!ends) return;
  const float both = fmaxf(all.largest, unit.largest);
  const float total_factor = power_of_two(all.largest - both), end = power_of_two(unit.largest - both);
  all = {.largest = both, .sum = all.sum * total_factor + unit.sum * end};
  unit = {};
  if (lane == 0) shared.total_factors[head] = total_factor, shared.ends[head] = end;
}

// ---- values ----

// Sums of a warp's 64 columns, sixteen a tile: columns g and g + 8 of the heads 2t and 2t + 1.
using Sums = float[4][4];

template <int kStages>
__device__ void add_values(int stage, const Shared<kStages>& shared, Sums& sums) {
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
template <int kStages>
__device__ void end_unit(const Shared<kStages>& shared, Sums& sums, Sums& totals) {
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

// The block's columns of y, all heads, from what the blocks of its cluster left.
template <int kStages>
__device__ void combine_cluster(const Gather& args, const Keys& keys, int count, Shared<kStages>& shared) {
  const Left& left = reinterpret_cast<const Left&>(shared.rows);
  const int lane = static_cast<int>(threadIdx.x) % 32, head = static_cast<int>(threadIdx.x) / 32;
  const int block_keys = args.units_each * args.unit_keys, parts = (count + block_keys - 1) / block_keys;
  const int columns = kLatent / static_cast<int>(gridDim.x), first = static_cast<int>(blockIdx.x) * columns;
  float factors[2];
  const float weights = find_factors(
      parts, args.units_each, [&](int s) { return load_of_block(&shared.maxima[head], s); },
      [&](int s) { return load_of_block(&shared.sums_of_weights[head], s); }, factors);
  for (int column = first + lane; column < first + columns; column += 32) {
    const float sum = fold(parts, args.units_each, factors, [&](int s) { return load_of_block(&left.sums[head][column], s); });
    if (head < args.heads) args.y[(std::int64_t{keys.token} * args.heads + head) * kLatent + column] = parts == 0 ? 0.0f : sum / weights;
  }
}

// Grid: blocks of a token, tokens. With clusters the blocks of a token are one.
template <int kStages, bool kClusters>
__global__ void __launch_bounds__(kThreads, kStages > 2 ? 1 : 2)
    attend_latent_gather_kernel(const __grid_constant__ Gather args, const __grid_constant__ Partials partials) {
#if __CUDA_ARCH__ < 900
  if constexpr (kClusters) return;
#endif
  if (gridDim.y == 1) let_next_begin();
  wait_for_previous();
  extern __shared__ __align__(16) unsigned char memory[];
  Shared<kStages>& shared = *reinterpret_cast<Shared<kStages>*>(memory);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int token = static_cast<int>(blockIdx.y);
  const int count = args.counts != nullptr ? args.counts[token] : args.cache.positions[token] + 1;
  const int block_keys = args.units_each * args.unit_keys, begin = static_cast<int>(blockIdx.x) * block_keys;
  const Keys keys{.token = token, .begin = begin, .end = min(begin + block_keys, count)};
  const int tiles = (keys.end - begin + kKeys - 1) / kKeys, unit_tiles = args.unit_keys / kKeys;
  if (tiles > 0) {
    int positions[kStages + 2];
#pragma unroll
    for (int i = 0; i < kStages + 2; ++i) positions[i] = find_position(args, keys, i);
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
      weigh(args.scale, keys.end - begin - tile * kKeys, ends, unit, all, shared);
      __syncthreads();
      add_values(stage, shared, sums);
      if (ends) end_unit(shared, sums, totals);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    if constexpr (kClusters) {
      wait_for_copies<0>();
      __syncthreads();
      Left& left = reinterpret_cast<Left&>(shared.rows);
      for_sums(totals, [&](int head, int column, float sum) { left.sums[head][column] = sum; });
      if (lane == 0) shared.maxima[warp] = all.largest, shared.sums_of_weights[warp] = all.sum;
    } else {
      const auto partial = [&](int head) { return (std::int64_t{token} * args.heads + head) * gridDim.x + blockIdx.x; };
      for_sums(totals, [&](int head, int column, float sum) {
        if (head < args.heads) partials.sums[partial(head) * kLatent + column] = sum;
      });
      if (lane == 0 && warp < args.heads) partials.maxima[partial(warp)] = all.largest, partials.weights[partial(warp)] = all.sum;
    }
  }
  let_next_begin();
  if constexpr (kClusters) {
    cluster_barrier();
    combine_cluster(args, keys, count, shared);
    cluster_barrier();  // the others may still read what this block left
  }
}

constexpr int kCombineThreads = 128;  // a column each
static_assert(kMostPieces == 64, "a lane has two pieces");

// Grid: heads, tokens, parts of the columns.
__global__ void __launch_bounds__(kCombineThreads)
    combine_units_kernel(const __grid_constant__ Gather args, const __grid_constant__ Partials partials, int blocks) {
  begin_kernel();
  const std::int64_t head = blockIdx.x, token = blockIdx.y;
  const int column = static_cast<int>(blockIdx.z) * kCombineThreads + static_cast<int>(threadIdx.x);
  const int count = args.counts != nullptr ? args.counts[token] : args.cache.positions[token] + 1;
  const int block_keys = args.units_each * args.unit_keys, parts = min((count + block_keys - 1) / block_keys, blocks);
  const std::int64_t first = (token * args.heads + head) * blocks;
  float factors[2];
  const float weights = find_factors(
      parts, args.units_each, [&](int s) { return partials.maxima[first + s]; }, [&](int s) { return partials.weights[first + s]; },
      factors);
  const float* at = partials.sums + first * kLatent + column;
  const float sum = fold(parts, args.units_each, factors, [&](int s) { return at[std::int64_t{s} * kLatent]; });
  args.y[(token * args.heads + head) * kLatent + column] = parts == 0 ? 0.0f : sum / weights;
}

std::int64_t attended_keys(const AttendLatentArgs& args) {
  return args.selection.counts.shape.rank() != 0 ? std::min(args.selection.top_k(), args.max_context) : args.max_context;
}
// Depends on the shape of a token only.
Split unit_split(const AttendLatentArgs& args) { return split_keys(attended_keys(args), kUnitKeys, kMostPieces); }

constexpr std::int64_t kFewTokens = 16;  // with a block a unit
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

// Of the first device asked for, as in launches_overlap().
bool large_clusters_fit() {
  static const bool yes = [] {
    allow_shared(attend_latent_gather_kernel<4, true>, sizeof(Shared<4>));
    allow_shared(attend_latent_gather_kernel<2, true>, sizeof(Shared<2>));
    return allow_large_clusters(attend_latent_gather_kernel<4, true>, kThreads, sizeof(Shared<4>)) &&
           allow_large_clusters(attend_latent_gather_kernel<2, true>, kThreads, sizeof(Shared<2>));
  }();
  return yes;
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
  allow_shared(attend_latent_gather_kernel<2, false>, sizeof(Shared<2>));
  const std::int64_t at_once = tokens_at_once(tokens, partial_bytes(heads, kLatent, split));
  const Partials partials = partials_in(lane.workspace, at_once, heads, kLatent, split);
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    const auto some = static_cast<unsigned>(std::min(at_once, tokens - first));
    launch(attend_latent_gather_kernel<2, false>, dim3(static_cast<unsigned>(split.pieces), some), kThreads, sizeof(Shared<2>),
           stream_of(lane), gather, partials);
    launch(combine_units_kernel, dim3(static_cast<unsigned>(heads), some, kLatent / kCombineThreads), kCombineThreads, 0, stream_of(lane),
           gather, partials, static_cast<int>(split.pieces));
    gather.q += some * heads * kWidth;
    gather.y += some * heads * kLatent;
    gather.cache.table += some * gather.cache.table_width;
    gather.cache.positions += some;
    if (gather.counts == nullptr) continue;
    gather.counts += some;
    gather.selected += some * gather.top_k;
  }
}

std::int64_t latent_clusters_shared_bytes() { return sizeof(Shared<4>); }

bool fits_latent_clusters(const AttendLatentArgs& args) {
  return fits_latent_gather(args) && unit_split(args).pieces <= kFewBlocks && args.q.dim(0) <= 65535 && large_clusters_fit();
}

void run_attend_latent_clusters(const AttendLatentArgs& args, Lane& lane) {
  constexpr std::int64_t kTokensOfAllRows = 8;  // all rows of a block at once, while the device has a multiprocessor for each
  const Gather gather = gather_of(args);
  const auto tokens = static_cast<unsigned>(args.q.dim(0));
  const unsigned blocks = gather.units_each == 1 ? kFewBlocks : kManyBlocks;
  static_cast<void>(large_clusters_fit());
  if (tokens <= kTokensOfAllRows) {
    launch_clusters(attend_latent_gather_kernel<4, true>, dim3(blocks, tokens), blocks, kThreads, sizeof(Shared<4>), stream_of(lane),
                    gather, Partials{});
  } else {
    launch_clusters(attend_latent_gather_kernel<2, true>, dim3(blocks, tokens), blocks, kThreads, sizeof(Shared<2>), stream_of(lane),
                    gather, Partials{});
  }
}

}  // namespace reckoner::cuda
