// latent_query and latent_value for any shape and format.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/latent/latent.h"
#include "kernels/cuda/linear/dot_tile.cuh"

namespace reckoner::cuda {
namespace {

// ---- latent_query: the weight's columns are the outputs ----

constexpr int kTokens = 4;
constexpr int kColumns = 256;  // of a block: a lane takes eight
constexpr int kWarps = 8;      // each takes every eighth row of the weight

struct LatentShape {
  std::int64_t tokens, heads, head_rows, nope, rope;
};

template <QuantFormat kFormat>
__global__ void __launch_bounds__(kWarps * 32, 2) latent_query_kernel(DeviceWeight w, const float* q, float* y, LatentShape shape) {
  begin_kernel();
  __shared__ float partial[kWarps][kTokens][kColumns];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t head = blockIdx.y, first_token = std::int64_t{blockIdx.z} * kTokens;
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumns + lane * 8;
  const std::int64_t q_width = shape.nope + shape.rope, y_width = w.cols + shape.rope;
  float sums[kTokens][8] = {};
  for (std::int64_t p = warp; p < shape.nope && column < w.cols; p += kWarps) {
    float weights[8];
    load_eight<kFormat>(w, head * shape.head_rows + p, column, weights);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (first_token + t >= shape.tokens) continue;
      const float element = q[((first_token + t) * shape.heads + head) * q_width + p];
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[t][i] = fmaf(element, weights[i], sums[t][i]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int i = 0; i < 8; ++i) partial[warp][t][lane * 8 + i] = sums[t][i];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kColumns; i += kWarps * 32) {
    const std::int64_t token = first_token + i / kColumns, c = std::int64_t{blockIdx.x} * kColumns + i % kColumns;
    if (token >= shape.tokens || c >= w.cols) continue;
    float sum = 0;
    for (int other = 0; other < kWarps; ++other) sum += partial[other][i / kColumns][i % kColumns];
    y[(token * shape.heads + head) * y_width + c] = sum;
  }
  if (blockIdx.x != 0) return;
  for (std::int64_t i = threadIdx.x; i < kTokens * shape.rope; i += kWarps * 32) {
    const std::int64_t token = first_token + i / shape.rope, r = i % shape.rope;
    if (token >= shape.tokens) continue;
    y[(token * shape.heads + head) * y_width + w.cols + r] = q[(token * shape.heads + head) * q_width + shape.nope + r];
  }
}

void run_latent_query(const LatentQueryArgs& args, Lane& lane) {
  const std::int64_t heads = args.q.dim(1);
  const LatentShape shape{
      .tokens = args.q.dim(0), .heads = heads, .head_rows = args.kv_b.rows / heads, .nope = args.nope, .rope = args.q.dim(2) - args.nope};
  const dim3 grid(blocks_for(args.kv_b.cols, kColumns), static_cast<unsigned>(heads), blocks_for(shape.tokens, kTokens));
  for_format(args.kv_b.format, [&]<QuantFormat kFormat>() {
    launch(latent_query_kernel<kFormat>, grid, kWarps * 32, 0, stream_of(lane), device_weight(args.kv_b), args.q.f32(), args.y.f32(),
           shape);
  });
}

// ---- latent_value: a linear layer a head ----

template <QuantFormat kFormat>
__global__ void __launch_bounds__(kTileWarps * 32) latent_value_kernel(DeviceWeight w, const float* x, float* y, LatentShape shape) {
  begin_kernel();
  const std::int64_t head = blockIdx.y, first_token = std::int64_t{blockIdx.z} * kTileTokens;
  const std::int64_t values = shape.head_rows - shape.nope;
  const std::int64_t own = std::int64_t{blockIdx.x} * kTileWarps * kTileRows + threadIdx.x / 32 * kTileRows;  // of the head's values
  if (own >= values) return;
  const std::int64_t head_first = head * shape.head_rows + shape.nope;
  const float* inputs[kTileTokens];
  float* outputs[kTileTokens];
  const int count = static_cast<int>(min(static_cast<long long>(shape.tokens - first_token), static_cast<long long>(kTileTokens)));
#pragma unroll
  for (int t = 0; t < kTileTokens; ++t) {
    const std::int64_t row = (first_token + (t < count ? t : 0)) * shape.heads + head;
    inputs[t] = x + row * w.cols;
    outputs[t] = y + row * values - head_first;  // dot_tile counts the weight's rows
  }
  dot_tile<kFormat, kTileTokens>(w, head_first + own, head_first + values, inputs, outputs, count);
}

constexpr int kAheadColumns = 512;

// The same for BF16 weights of at most kAheadColumns whole pieces, in the same order: the weights are on their way before the kernel ahead
// has ended, as nobody writes them.
__global__ void __launch_bounds__(kTileWarps * 32) latent_value_ahead_kernel(DeviceWeight w, const float* x, float* y, LatentShape shape) {
  constexpr int kPieces = kAheadColumns / 256;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t head = blockIdx.y, first_token = std::int64_t{blockIdx.z} * kTileTokens;
  const int values = static_cast<int>(shape.head_rows - shape.nope);
  const int own = (static_cast<int>(blockIdx.x) * kTileWarps + static_cast<int>(threadIdx.x) / 32) * kTileRows;  // of the head's values
  float weights[kPieces][kTileRows][8];
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      const int first = piece * 256 + lane * 8;
      if (first < w.cols)
        load_eight<QuantFormat::bf16>(w, head * shape.head_rows + shape.nope + min(own + r, values - 1), first, weights[piece][r]);
    }
  }
  begin_kernel();
  if (own >= values) return;
  const int count = static_cast<int>(min(static_cast<long long>(shape.tokens - first_token), static_cast<long long>(kTileTokens)));
  for (int t = 0; t < count; ++t) {
    const std::int64_t row = (first_token + t) * shape.heads + head;
    float sums[kTileRows] = {};
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int first = piece * 256 + lane * 8;
      if (first >= w.cols) continue;
      const auto* from = reinterpret_cast<const float4*>(x + row * w.cols + first);
      const float4 low = from[0], high = from[1];
      const float inputs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) {
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[r] = fmaf(weights[piece][r][i], inputs[i], sums[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      const float sum = warp_sum(sums[r]);
      if (lane == 0 && own + r < values) y[row * values + own + r] = sum;
    }
  }
}

void run_latent_value(const LatentValueArgs& args, Lane& lane) {
  if (fits_latent_mma(args)) return run_latent_mma(args, lane);
  const std::int64_t heads = args.x.dim(1);
  const LatentShape shape{.tokens = args.x.dim(0), .heads = heads, .head_rows = args.kv_b.rows / heads, .nope = args.nope, .rope = 0};
  const dim3 grid(blocks_for(args.y.dim(2), kTileWarps * kTileRows), static_cast<unsigned>(heads), blocks_for(shape.tokens, kTileTokens));
  if (args.kv_b.format == QuantFormat::bf16 && args.kv_b.cols <= kAheadColumns && args.kv_b.cols % 8 == 0) {
    return launch(latent_value_ahead_kernel, grid, kTileWarps * 32, 0, stream_of(lane), device_weight(args.kv_b), args.x.f32(),
                  args.y.f32(), shape);
  }
  for_format(args.kv_b.format, [&]<QuantFormat kFormat>() {
    launch(latent_value_kernel<kFormat>, grid, kTileWarps * 32, 0, stream_of(lane), device_weight(args.kv_b), args.x.f32(), args.y.f32(),
           shape);
  });
}

}  // namespace

Kernel<LatentQueryArgs> latent_query_generic() {
  return {"latent_query.cuda", supports_any<4 * kWarps * kTokens * kColumns>, no_workspace<LatentQueryArgs>, run_latent_query};
}
std::vector<Kernel<LatentQueryArgs>> latent_query_kernels() { return {latent_query_spread(), latent_query_generic()}; }
std::vector<Kernel<LatentValueArgs>> latent_value_kernels() {
  return {{"latent_value.cuda", supports_any<>, no_workspace<LatentValueArgs>, run_latent_value}};
}

}  // namespace reckoner::cuda
