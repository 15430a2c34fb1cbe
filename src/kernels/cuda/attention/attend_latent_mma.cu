// attend_latent on BF16 rows of 512 + 64 elements (what all published MLA models have), through the matrix instruction: a block takes
// sixteen heads of a token and a piece of its keys. Rows are gathered into shared memory once and serve as keys and as values. Queries and
// weights are two BF16 numbers each, off by 2^-16: a thousandth of what the bound on float sums of 576 terms allows.
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/split.cuh"
#include "kernels/cuda/common/cache.cuh"
#include "kernels/cuda/common/instructions.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kLatent = 512, kWidth = 576;
constexpr int kHeads = 16;     // a block
constexpr int kKeys = 32;      // a tile
constexpr int kThreads = 256;  // eight warps
constexpr int kParts = 2;
constexpr int kRowStride = kWidth + 8;  // in shared memory: rows then begin in different banks
constexpr int kSlices = 4;              // of the 576 columns, while scoring: a warp has a slice and half of the keys
constexpr int kSliceSteps = kWidth / 16 / kSlices;

struct Shared {
  std::uint16_t rows[2][kKeys][kRowStride];
  float scores[kSlices][kHeads][kKeys + 4];
  std::uint16_t weights[kParts][kHeads][kKeys + 8];
  float factors[kHeads];
};
static_assert(sizeof(Shared) <= kPortableSharedBytes);

struct AttendLatent {
  const float* q;  // [tokens, heads, 576]
  DeviceCache cache;
  const std::int32_t* counts;    // [tokens], or null: everything up to the token
  const std::int32_t* selected;  // [tokens, top_k]
  std::int64_t top_k;
  float scale;
  int heads;
  Split split;
};

// A warp fetches four rows: a lane finds its row's address, then all lanes copy.
__device__ void fetch_rows(const AttendLatent& args, std::int64_t token, std::int64_t first, std::int64_t end,
                           std::uint16_t (&rows)[kKeys][kRowStride]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t key = first + warp * 4 + lane % 4;
  const std::byte* own = args.cache.base;
  if (key < end) own = cache_row(args.cache, token, args.counts != nullptr ? args.selected[token * args.top_k + key] : key);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto* row = reinterpret_cast<const std::byte*>(__shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(own), i));
    const bool there = first + warp * 4 + i < end;
    for (int piece = lane; piece < kWidth / 8; piece += 32) copy_async(&rows[warp * 4 + i][piece * 8], row + piece * 16, there);
  }
}

// The warp's part of q as operands: its slice of the columns, all sixteen heads.
__device__ void load_query(const AttendLatent& args, std::int64_t token, int first_head, int slice,
                           std::uint32_t (&q)[kSliceSteps][kParts][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int step = 0; step < kSliceSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int head = first_head + g + i % 2 * 8, column = (slice * kSliceSteps + step) * 16 + t * 2 + i / 2 * 8;
      float2 pair = make_float2(0, 0);
      if (head < args.heads) pair = *reinterpret_cast<const float2*>(args.q + (token * args.heads + head) * kWidth + column);
      std::uint32_t parts[kParts];
      split_pair<kParts>(pair.x, pair.y, parts);
#pragma unroll
      for (int part = 0; part < kParts; ++part) q[step][part][i] = parts[part];
    }
  }
}

__device__ void score_slice(const std::uint32_t (&q)[kSliceSteps][kParts][4], int slice, int half, int buffer, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  float sums[2][4] = {};
  const std::uint16_t* row = &shared.rows[buffer][half * 16 + lane / 16 * 8 + lane % 8][slice * kSliceSteps * 16 + lane / 8 % 2 * 8];
#pragma unroll
  for (int step = 0; step < kSliceSteps; ++step) {
    std::uint32_t keys[4];
    load_matrices(keys, row + step * 16);
#pragma unroll
    for (int part = kParts - 1; part >= 0; --part) {
      const std::uint32_t(&a)[4] = q[step][part];
      mma_bf16(sums[0], a[0], a[1], a[2], a[3], keys[0], keys[1]);
      mma_bf16(sums[1], a[0], a[1], a[2], a[3], keys[2], keys[3]);
    }
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) shared.scores[slice][g + i / 2 * 8][half * 16 + n * 8 + t * 2 + i % 2] = sums[n][i];
  }
}

// Running values of a head's softmax; the sixteen threads of a head hold the same.
struct Softmax {
  float largest = -INFINITY, sum = 0;
};

// Thread (head, j) has the keys 2j and 2j + 1 of the tile, of which `count` exist.
__device__ void weigh(float scale, int count, bool is_first, Softmax& softmax, Shared& shared) {
  const int head = static_cast<int>(threadIdx.x) / 16, j = static_cast<int>(threadIdx.x) % 16;
  float scores[2], weights[2];
  float largest = softmax.largest;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int key = 2 * j + i;
    float score = 0;
    for (int slice = 0; slice < kSlices; ++slice) score += shared.scores[slice][head][key];
    scores[i] = key < count ? score * scale : -INFINITY;
    largest = fmaxf(largest, scores[i]);
  }
  for (int step = 8; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
  const float factor = is_first ? 0.0f : expf(softmax.largest - largest);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    weights[i] = 2 * j + i < count ? expf(scores[i] - largest) : 0.0f;
    sum += weights[i];
  }
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  softmax = {.largest = largest, .sum = softmax.sum * factor + sum};
  std::uint32_t parts[kParts];
  split_pair<kParts>(weights[0], weights[1], parts);
#pragma unroll
  for (int part = 0; part < kParts; ++part) *reinterpret_cast<std::uint32_t*>(&shared.weights[part][head][2 * j]) = parts[part];
  if (j == 0) shared.factors[head] = factor;
}

// Adds the tile's values to the warp's 64 columns.
__device__ void add_values(int buffer, const Shared& shared, float (&sums)[8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const float low = shared.factors[g], high = shared.factors[g + 8];
#pragma unroll
  for (float(&tile)[4] : sums) tile[0] *= low, tile[1] *= low, tile[2] *= high, tile[3] *= high;
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    std::uint32_t p[kParts][4];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[part][i] = *reinterpret_cast<const std::uint32_t*>(&shared.weights[part][g + i % 2 * 8][step * 16 + t * 2 + i / 2 * 8]);
      }
    }
    const std::uint16_t* row = &shared.rows[buffer][step * 16 + lane % 16][warp * 64 + lane / 16 * 8];
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      std::uint32_t values[4];
      load_matrices_transposed(values, row + pair * 16);
#pragma unroll
      for (int part = kParts - 1; part >= 0; --part) {
        mma_bf16(sums[2 * pair], p[part][0], p[part][1], p[part][2], p[part][3], values[0], values[1]);
        mma_bf16(sums[2 * pair + 1], p[part][0], p[part][1], p[part][2], p[part][3], values[2], values[3]);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads) attend_latent_mma_kernel(AttendLatent args, Partials partials) {
  begin_kernel();
  unsigned char* const memory = dynamic_shared<unsigned char>();
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const std::int64_t token = blockIdx.z, piece = blockIdx.x;
  const int first_head = static_cast<int>(blockIdx.y) * kHeads;
  const std::int64_t count = args.counts != nullptr ? args.counts[token] : args.cache.positions[token] + 1;
  const std::int64_t begin = piece * args.split.length;
  const std::int64_t end = min(static_cast<long long>(begin + args.split.length), static_cast<long long>(count));
  if (begin >= end) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int slice = warp / 2, half = warp % 2;

  fetch_rows(args, token, begin, end, shared.rows[0]);
  commit_copies();
  std::uint32_t q[kSliceSteps][kParts][4];
  load_query(args, token, first_head, slice, q);
  Softmax softmax;
  float sums[8][4] = {};
  int buffer = 0;
  for (std::int64_t first = begin; first < end; first += kKeys, buffer ^= 1) {
    if (first + kKeys < end) fetch_rows(args, token, first + kKeys, end, shared.rows[buffer ^ 1]);
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();
    score_slice(q, slice, half, buffer, shared);
    __syncthreads();
    weigh(args.scale, static_cast<int>(min(static_cast<long long>(kKeys), static_cast<long long>(end - first))), first == begin, softmax,
          shared);
    __syncthreads();
    add_values(buffer, shared, sums);
    __syncthreads();
  }
  const auto partial = [&](int head) { return (token * args.heads + first_head + head) * args.split.pieces + piece; };
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      if (first_head + g + high * 8 >= args.heads) continue;
      float* to = partials.sums + partial(g + high * 8) * kLatent + warp * 64 + n * 8 + t * 2;
      *reinterpret_cast<float2*>(to) = make_float2(sums[n][2 * high], sums[n][2 * high + 1]);
    }
  }
  const int head = static_cast<int>(threadIdx.x) / 16;
  if (threadIdx.x % 16 == 0 && first_head + head < args.heads) {
    partials.maxima[partial(head)] = softmax.largest;
    partials.weights[partial(head)] = softmax.sum;
  }
}

std::int64_t attended_keys(const AttendLatentArgs& args) {
  return args.selection.counts.shape.rank() != 0 ? std::min(args.selection.top_k(), args.max_context) : args.max_context;
}

Split latent_split(std::int64_t attended) { return split_keys(attended, 64, 64); }

}  // namespace

bool fits_latent_mma(const AttendLatentArgs& args) {
  return args.q.dim(2) == kWidth && args.y.dim(2) == kLatent && args.cache.dtype == DType::bf16 && args.cache.page_bytes % 16 == 0 &&
         args.cache.offset_bytes % 16 == 0;
}

std::int64_t latent_mma_workspace(const AttendLatentArgs& args) {
  const std::int64_t token_bytes = partial_bytes(args.q.dim(1), kLatent, latent_split(attended_keys(args)));
  return tokens_at_once(args.q.dim(0), token_bytes) * token_bytes;
}

void run_attend_latent_mma(const AttendLatentArgs& args, CombinePieces* combine, Lane& lane) {
  const std::int64_t tokens = args.q.dim(0), heads = args.q.dim(1);
  AttendLatent attend{.q = args.q.f32(),
                      .cache = device_cache(args.cache, args.places),
                      .counts = nullptr,
                      .selected = nullptr,
                      .top_k = 0,
                      .scale = args.scale,
                      .heads = static_cast<int>(heads),
                      .split = latent_split(attended_keys(args))};
  if (args.selection.counts.shape.rank() != 0) {
    attend.counts = args.selection.counts.i32();
    attend.selected = args.selection.positions.i32();
    attend.top_k = args.selection.top_k();
  }
  allow_shared(attend_latent_mma_kernel, sizeof(Shared));
  const std::int64_t at_once = tokens_at_once(tokens, partial_bytes(heads, kLatent, attend.split));
  const Partials partials = partials_in(lane.workspace, at_once, heads, kLatent, attend.split);
  float* y = args.y.f32();
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    const std::int64_t some = std::min(at_once, tokens - first);
    const dim3 grid(static_cast<unsigned>(attend.split.pieces), blocks_for(heads, kHeads), static_cast<unsigned>(some));
    launch(attend_latent_mma_kernel, grid, kThreads, sizeof(Shared), stream_of(lane), attend, partials);
    combine(partials, attend.split, attend.counts, attend.cache.positions, y, some, heads, kLatent, stream_of(lane));
    attend.q += some * heads * kWidth;
    y += some * heads * kLatent;
    attend.cache.table += some * attend.cache.table_width;
    attend.cache.positions += some;
    if (attend.counts == nullptr) continue;
    attend.counts += some;
    attend.selected += some * attend.top_k;
  }
}

}  // namespace reckoner::cuda
