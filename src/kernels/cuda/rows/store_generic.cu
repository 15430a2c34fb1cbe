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

// A block a token; its row is put together in shared memory.
__global__ void store_latent_kernel(const float* kv, const float* weight, float epsilon, std::int64_t latent, Rope rope,
                                    DeviceCache cache) {
  begin_kernel();
  extern __shared__ float row[];  // [width]
  __shared__ float scratch[kThreads / 32];
  const std::int64_t token = blockIdx.x, width = cache.elements;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    row[i] = kv[token * width + i];
    if (i < latent) sum += row[i] * row[i];
  }
  const float inverse = 1.0f / sqrtf(block_sum<kThreads>(sum, scratch) / static_cast<float>(latent) + epsilon);
  for (std::int64_t i = threadIdx.x; i < latent; i += kThreads) row[i] = row[i] * inverse * weight[i];
  rotate_row(row + latent, rope, token);
  __syncthreads();
  store_cache_row(cache, cache_row(cache, token, cache.positions[token]), row);
}

void run_store_latent(const StoreLatentArgs& args, Lane& lane) {
  const std::int64_t shared = args.kv.dim(1) * 4;
  allow_shared(store_latent_kernel, shared);
  const Rope rope{.cosine = args.cosine.f32(), .sine = args.sine.f32(), .pairs = args.cosine.dim(1), .layout = args.layout};
  launch(store_latent_kernel, static_cast<unsigned>(args.kv.dim(0)), kThreads, shared, stream_of(lane), args.kv.f32(), args.weight.f32(),
         args.epsilon, args.weight.dim(0), rope, device_cache(args.cache, args.places));
}

// In double, as the reference: a mean that is large against the spread would cost the digits that matter.
__global__ void store_index_key_kernel(const float* k, const float* weight, const float* bias, float epsilon, Rope rope,
                                       DeviceCache cache) {
  begin_kernel();
  extern __shared__ float row[];  // [width]
  __shared__ double scratch[kThreads / 32];
  const std::int64_t token = blockIdx.x, width = cache.elements;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) sum += row[i] = k[token * width + i];
  const double mean = block_sum<kThreads>(sum, scratch) / static_cast<double>(width);
  double squares = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) squares += (row[i] - mean) * (row[i] - mean);
  const double inverse = 1 / sqrt(block_sum<kThreads>(squares, scratch) / static_cast<double>(width) + epsilon);
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    row[i] = __fadd_rn(__fmul_rn(static_cast<float>((row[i] - mean) * inverse), weight[i]), bias[i]);
  }
  __syncthreads();
  rotate_row(row, rope, token);
  __syncthreads();
  store_cache_row(cache, cache_row(cache, token, cache.positions[token]), row);
}

void run_store_index_key(const StoreIndexKeyArgs& args, Lane& lane) {
  const std::int64_t shared = args.k.dim(1) * 4;
  allow_shared(store_index_key_kernel, shared);
  const Rope rope{.cosine = args.cosine.f32(), .sine = args.sine.f32(), .pairs = args.cosine.dim(1), .layout = args.layout};
  launch(store_index_key_kernel, static_cast<unsigned>(args.k.dim(0)), kThreads, shared, stream_of(lane), args.k.f32(), args.weight.f32(),
         args.bias.f32(), args.epsilon, rope, device_cache(args.cache, args.places));
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
std::vector<Kernel<StoreRowsArgs>> store_rows_kernels() {
  return {{"store_rows.cuda", supports_any<>, no_workspace<StoreRowsArgs>, run_store_rows}};
}

}  // namespace reckoner::cuda
