// latent_query for a few tokens: so many blocks, and rows of the weight so spread over a block's threads, that each thread has only a few
// loads, all under way at once.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/weights.cuh"
#include "kernels/cuda/latent/latent.h"

namespace reckoner::cuda {
namespace {

constexpr int kTokens = 4;      // a block
constexpr int kMostTokens = 8;  // beyond it the generic kernel reads the weight less often
constexpr int kThreads = 256;
constexpr int kPieces = 8;  // of eight columns, a block
constexpr int kColumns = kPieces * 8;
constexpr int kSlices = kThreads / kPieces;  // of the weight's rows: each takes every 32nd
constexpr int kWarps = kThreads / 32;

struct LatentShape {
  std::int64_t heads, head_rows;
  int tokens, nope, rope;
};

template <QuantFormat kFormat>
__global__ void __launch_bounds__(kThreads, 2) latent_query_spread_kernel(DeviceWeight w, const float* q, float* y, LatentShape shape) {
  begin_kernel();
  __shared__ float partial[kWarps][kTokens][kColumns];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int piece = thread % kPieces, slice = thread / kPieces;
  const std::int64_t head = blockIdx.y, first_column = std::int64_t{blockIdx.x} * kColumns, column = first_column + piece * 8;
  const int first_token = static_cast<int>(blockIdx.z) * kTokens, count = min(kTokens, shape.tokens - first_token);
  const std::int64_t q_width = shape.nope + shape.rope, y_width = w.cols + shape.rope;
  float sums[kTokens][8] = {};
  if (column < w.cols) {
#pragma unroll 4
    for (int p = slice; p < shape.nope; p += kSlices) {
      float weights[8];
      load_eight<kFormat>(w, head * shape.head_rows + p, column, weights);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        if (t >= count) continue;
        const float element = q[((first_token + t) * shape.heads + head) * q_width + p];
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[t][i] = fmaf(element, weights[i], sums[t][i]);
      }
    }
  }
  // A warp has four slices of the same columns.
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (t >= count) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float sum = sums[t][i];
      sum += __shfl_xor_sync(kAllLanes, sum, kPieces);
      sum += __shfl_xor_sync(kAllLanes, sum, 2 * kPieces);
      if (lane < kPieces) partial[warp][t][piece * 8 + i] = sum;
    }
  }
  __syncthreads();
  for (int i = thread; i < count * kColumns; i += kThreads) {
    const std::int64_t token = first_token + i / kColumns, c = first_column + i % kColumns;
    if (c >= w.cols) continue;
    float sum = 0;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) sum += partial[other][i / kColumns][i % kColumns];
    y[(token * shape.heads + head) * y_width + c] = sum;
  }
  if (blockIdx.x != 0) return;
  for (int i = thread; i < count * shape.rope; i += kThreads) {
    const std::int64_t row = (first_token + i / shape.rope) * shape.heads + head;
    y[row * y_width + w.cols + i % shape.rope] = q[row * q_width + shape.nope + i % shape.rope];
  }
}

// A few tokens are summed in another order than many.
Support supports(const Key& key, const DeviceInfo& device) {
  if (key.precision == Precision::exact)
    return {.yes = false, .reason = "its sums depend on how many tokens there are, those of exact may not"};
  return supports_portable(device, 32768);
}

void run(const LatentQueryArgs& args, Lane& lane) {
  if (fits_latent_mma(args)) return run_latent_mma(args, lane);
  if (args.q.dim(0) > kMostTokens) return latent_query_generic().run(args, lane);
  const std::int64_t heads = args.q.dim(1);
  const LatentShape shape{.heads = heads,
                          .head_rows = args.kv_b.rows / heads,
                          .tokens = static_cast<int>(args.q.dim(0)),
                          .nope = static_cast<int>(args.nope),
                          .rope = static_cast<int>(args.q.dim(2) - args.nope)};
  const dim3 grid(blocks_for(args.kv_b.cols, kColumns), static_cast<unsigned>(heads), blocks_for(shape.tokens, kTokens));
  for_format(args.kv_b.format, [&]<QuantFormat kFormat>() {
    launch(latent_query_spread_kernel<kFormat>, grid, kThreads, 0, stream_of(lane), device_weight(args.kv_b), args.q.f32(), args.y.f32(),
           shape);
  });
}

}  // namespace

Kernel<LatentQueryArgs> latent_query_spread() { return {"latent_query.spread.cuda", supports, no_workspace<LatentQueryArgs>, run}; }

}  // namespace reckoner::cuda
