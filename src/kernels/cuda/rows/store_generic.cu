// rope_angles, rope_heads and what is stored into the cache, for any shape and cache dtype.
#include "kernels/cuda/common/cache.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/rows/rows.h"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void rope_angles_kernel(const std::int32_t* positions, const float* frequencies, float* cosine, float* sine, std::int64_t count,
                                   std::int64_t pairs) {
  begin_kernel();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const float angle = __fmul_rn(static_cast<float>(positions[i / pairs]), frequencies[i % pairs]);
  cosine[i] = static_cast<float>(cos(static_cast<double>(angle)));
  sine[i] = static_cast<float>(sin(static_cast<double>(angle)));
}

void run_rope_angles(const RopeAnglesArgs& args, Lane& lane) {
  const std::int64_t count = args.cosine.shape.elements();
  launch(rope_angles_kernel, blocks_for(count, kThreads), kThreads, 0, stream_of(lane), args.positions.i32(), args.frequencies.f32(),
         args.cosine.f32(), args.sine.f32(), count, args.frequencies.dim(0));
}

// Each product and sum is rounded by itself, as in the reference.
__device__ void rotate_pair(float* x, std::int64_t pair, std::int64_t pairs, float cosine, float sine, RopeLayout layout) {
  float* a = layout == RopeLayout::interleaved ? x + 2 * pair : x + pair;
  float* b = layout == RopeLayout::interleaved ? a + 1 : a + pairs;
  const float old_a = *a, old_b = *b;
  *a = __fsub_rn(__fmul_rn(old_a, cosine), __fmul_rn(old_b, sine));
  *b = __fadd_rn(__fmul_rn(old_b, cosine), __fmul_rn(old_a, sine));
}

struct RopeHeads {
  float* x;
  const float* cosine;
  const float* sine;
  std::int64_t count, pairs, heads, head_dim, first;
  RopeLayout layout;
};

__global__ void rope_heads_kernel(RopeHeads args) {
  begin_kernel();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.count) return;
  const std::int64_t row = i / args.pairs, pair = i % args.pairs;
  const std::int64_t at = row / args.heads * args.pairs + pair;
  rotate_pair(args.x + row * args.head_dim + args.first, pair, args.pairs, args.cosine[at], args.sine[at], args.layout);
}

void run_rope_heads(const RopeHeadsArgs& args, Lane& lane) {
  const std::int64_t pairs = args.cosine.dim(1);
  const std::int64_t count = args.x.dim(0) * args.x.dim(1) * pairs;
  launch(rope_heads_kernel, blocks_for(count, kThreads), kThreads, 0, stream_of(lane),
         {.x = args.x.f32(),
          .cosine = args.cosine.f32(),
          .sine = args.sine.f32(),
          .count = count,
          .pairs = pairs,
          .heads = args.x.dim(1),
          .head_dim = args.x.dim(2),
          .first = args.first,
          .layout = args.layout});
}

// ---- store ----

struct Rope {
  const float* cosine;  // [tokens, pairs]
  const float* sine;
  std::int64_t pairs;
  RopeLayout layout;
};

__device__ void rotate_row(float* x, const Rope& rope, std::int64_t token) {
  for (std::int64_t pair = threadIdx.x; pair < rope.pairs; pair += kThreads) {
    rotate_pair(x, pair, rope.pairs, rope.cosine[token * rope.pairs + pair], rope.sine[token * rope.pairs + pair], rope.layout);
  }
}

struct StoreLatent {
  const float* kv;      // [tokens, width]
  const float* weight;  // [latent]
  float epsilon;
  int latent;
  Rope rope;
  DeviceCache cache;
};

constexpr int kAhead = 4;  // elements of a thread's weights that are on their way before the kernel ahead has ended: nobody writes them

// By a block, which begins its kernel here; the row is put together in shared memory.
__device__ void store_latent(const StoreLatent& args, std::int64_t token, float* row) {
  __shared__ float scratch[kThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), width = args.cache.elements;
  float weights[kAhead];
#pragma unroll
  for (int j = 0; j < kAhead; ++j) weights[j] = thread + j * kThreads < args.latent ? args.weight[thread + j * kThreads] : 0.0f;
  begin_kernel();
  std::byte* const to = cache_row(args.cache, token, args.cache.positions[token]);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    row[i] = args.kv[token * width + i];
    if (i < args.latent) sum += row[i] * row[i];
  }
  const float inverse = 1.0f / sqrtf(block_sum<kThreads>(sum, scratch) / static_cast<float>(args.latent) + args.epsilon);
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    const int i = thread + j * kThreads;
    if (i < args.latent) row[i] = row[i] * inverse * weights[j];
  }
  for (int i = thread + kAhead * kThreads; i < args.latent; i += kThreads) row[i] = row[i] * inverse * args.weight[i];
  rotate_row(row + args.latent, args.rope, token);
  __syncthreads();
  store_cache_row(args.cache, to, row);
}

__global__ void __launch_bounds__(kThreads) store_latent_kernel(const __grid_constant__ StoreLatent args) {
  float* const row = dynamic_shared<float>();  // [width]
  store_latent(args, blockIdx.x, row);
}

Rope rope_of(const Tensor& cosine, const Tensor& sine, RopeLayout layout) {
  return {.cosine = cosine.f32(), .sine = sine.f32(), .pairs = cosine.dim(1), .layout = layout};
}

StoreLatent store_of(const StoreLatentArgs& args) {
  return {.kv = args.kv.f32(),
          .weight = args.weight.f32(),
          .epsilon = args.epsilon,
          .latent = static_cast<int>(args.weight.dim(0)),
          .rope = rope_of(args.cosine, args.sine, args.layout),
          .cache = device_cache(args.cache, args.places)};
}

void run_store_latent(const StoreLatentArgs& args, Lane& lane) {
  const std::int64_t shared = args.kv.dim(1) * 4;
  allow_shared(store_latent_kernel, shared);
  launch(store_latent_kernel, static_cast<unsigned>(args.kv.dim(0)), kThreads, shared, stream_of(lane), store_of(args));
}

struct StoreIndexKey {
  const float* k;       // [tokens, width]
  const float* weight;  // [width]
  const float* bias;    // [width]
  float epsilon;
  Rope rope;
  DeviceCache cache;
};

// By a block, as store_latent(). In double, as the reference: a mean that is large against the spread would cost the digits that matter.
__device__ void store_index_key(const StoreIndexKey& args, std::int64_t token, float* row) {
  __shared__ double scratch[kThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), width = args.cache.elements;
  const float weight = thread < width ? args.weight[thread] : 0.0f, bias = thread < width ? args.bias[thread] : 0.0f;
  begin_kernel();
  std::byte* const to = cache_row(args.cache, token, args.cache.positions[token]);
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) sum += row[i] = args.k[token * width + i];
  const double mean = block_sum<kThreads>(sum, scratch) / static_cast<double>(width);
  double squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) squares += (row[i] - mean) * (row[i] - mean);
  const double inverse = 1 / sqrt(block_sum<kThreads>(squares, scratch) / static_cast<double>(width) + args.epsilon);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    const bool own = i == thread;
    row[i] = __fadd_rn(__fmul_rn(static_cast<float>((row[i] - mean) * inverse), own ? weight : args.weight[i]), own ? bias : args.bias[i]);
  }
  __syncthreads();
  rotate_row(row, args.rope, token);
  __syncthreads();
  store_cache_row(args.cache, to, row);
}

__global__ void __launch_bounds__(kThreads) store_index_key_kernel(const __grid_constant__ StoreIndexKey args) {
  float* const row = dynamic_shared<float>();  // [width]
  store_index_key(args, blockIdx.x, row);
}

StoreIndexKey store_of(const StoreIndexKeyArgs& args) {
  return {.k = args.k.f32(),
          .weight = args.weight.f32(),
          .bias = args.bias.f32(),
          .epsilon = args.epsilon,
          .rope = rope_of(args.cosine, args.sine, args.layout),
          .cache = device_cache(args.cache, args.places)};
}

void run_store_index_key(const StoreIndexKeyArgs& args, Lane& lane) {
  const std::int64_t shared = args.k.dim(1) * 4;
  allow_shared(store_index_key_kernel, shared);
  launch(store_index_key_kernel, static_cast<unsigned>(args.k.dim(0)), kThreads, shared, stream_of(lane), store_of(args));
}

// ---- all that is rotated and stored before attention ----

// Heads of a token to be rotated.
struct Heads {
  float* x;  // [tokens, heads, head_dim]
  int heads, head_dim, first;
  RopeLayout layout;
};

struct RotateAndStore {
  StoreLatent latent;
  StoreIndexKey key;
  Heads heads[2];  // the second of the indexer: none, and no key, without one
};

constexpr int kPairsOfBlock = 2 * kThreads;

// Grid: tokens; what stores, then what rotates kPairsOfBlock pairs each.
__global__ void __launch_bounds__(kThreads) rotate_and_store_kernel(const __grid_constant__ RotateAndStore args) {
  float* const row = dynamic_shared<float>();  // [the wider of what is stored]
  const std::int64_t token = blockIdx.x;
  const int stores = args.heads[1].heads > 0 ? 2 : 1, job = static_cast<int>(blockIdx.y);
  if (job == 0) return store_latent(args.latent, token, row);
  if (job < stores) return store_index_key(args.key, token, row);
  begin_kernel();
  const Rope& rope = args.latent.rope;
  const int pairs = static_cast<int>(rope.pairs);
#pragma unroll
  for (int j = 0; j < kPairsOfBlock / kThreads; ++j) {
    int i = (job - stores) * kPairsOfBlock + j * kThreads + static_cast<int>(threadIdx.x);
    const bool second = i >= args.heads[0].heads * pairs;
    const Heads& heads = args.heads[second ? 1 : 0];
    if (second) i -= args.heads[0].heads * pairs;
    if (i >= heads.heads * pairs) continue;
    const int head = i / pairs, pair = i % pairs;
    const std::int64_t at = token * pairs + pair;
    rotate_pair(heads.x + (token * heads.heads + head) * heads.head_dim + heads.first, pair, pairs, rope.cosine[at], rope.sine[at],
                heads.layout);
  }
}

Heads heads_of(const RopeHeadsArgs& args) {
  return {.x = args.x.f32(),
          .heads = static_cast<int>(args.x.dim(1)),
          .head_dim = static_cast<int>(args.x.dim(2)),
          .first = static_cast<int>(args.first),
          .layout = args.layout};
}

void run_rotate_and_store(const RotateAndStoreArgs& args, Lane& lane) {
  RotateAndStore all{.latent = store_of(args.store_latent()), .key = {}, .heads = {heads_of(args.queries()), {}}};
  std::int64_t width = args.kv.dim(1), heads = args.q.dim(1), stores = 1;
  if (args.has_indexer()) {
    all.key = store_of(args.store_index_key());
    all.heads[1] = heads_of(args.index_queries());
    width = std::max(width, args.k.dim(1));
    heads += args.index_q.dim(1);
    stores = 2;
  }
  allow_shared(rotate_and_store_kernel, width * 4);
  const dim3 grid(static_cast<unsigned>(args.q.dim(0)),
                  static_cast<unsigned>(stores) + blocks_for(heads * args.cosine.dim(1), kPairsOfBlock));
  launch(rotate_and_store_kernel, grid, kThreads, static_cast<std::size_t>(width) * 4, stream_of(lane), all);
}

__global__ void store_rows_kernel(const float* x, DeviceCache cache) {
  begin_kernel();
  const std::int64_t token = blockIdx.x;
  store_cache_row(cache, cache_row(cache, token, cache.positions[token]), x + token * cache.elements);
}

void run_store_rows(const StoreRowsArgs& args, Lane& lane) {
  launch(store_rows_kernel, static_cast<unsigned>(args.x.dim(0)), kThreads, 0, stream_of(lane), args.x.f32(),
         device_cache(args.cache, args.places));
}

}  // namespace

std::vector<Kernel<RopeAnglesArgs>> rope_angles_kernels() {
  return {{"rope_angles.cuda", supports_any<>, no_workspace<RopeAnglesArgs>, run_rope_angles}};
}
std::vector<Kernel<RopeHeadsArgs>> rope_heads_kernels() {
  return {{"rope_heads.cuda", supports_any<>, no_workspace<RopeHeadsArgs>, run_rope_heads}};
}
std::vector<Kernel<StoreLatentArgs>> store_latent_kernels() {
  return {{"store_latent.cuda", supports_any<kPlainSharedBytes>, no_workspace<StoreLatentArgs>, run_store_latent}};
}
std::vector<Kernel<StoreIndexKeyArgs>> store_index_key_kernels() {
  return {{"store_index_key.cuda", supports_any<kPlainSharedBytes>, no_workspace<StoreIndexKeyArgs>, run_store_index_key}};
}
std::vector<Kernel<RotateAndStoreArgs>> rotate_and_store_kernels() {
  return {{"rotate_and_store.cuda", supports_any<kPlainSharedBytes>, no_workspace<RotateAndStoreArgs>, run_rotate_and_store}};
}
std::vector<Kernel<StoreRowsArgs>> store_rows_kernels() {
  return {{"store_rows.cuda", supports_any<>, no_workspace<StoreRowsArgs>, run_store_rows}};
}

}  // namespace reckoner::cuda
