#include "kernels/cuda/attention/split.cuh"

#include "kernels/cuda/common/numbers.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = 512;

__global__ void combine_pieces_kernel(Partials partials, Split split, const std::int32_t* counts, const std::int32_t* positions, float* y,
                                      std::int64_t heads, std::int64_t width) {
  begin_kernel();
  const std::int64_t head = blockIdx.x, token = blockIdx.y;
  const std::int64_t count = counts != nullptr ? counts[token] : positions[token] + 1;
  const std::int64_t pieces = min(static_cast<long long>((count + split.length - 1) / split.length), static_cast<long long>(split.pieces));
  const std::int64_t first = (token * heads + head) * split.pieces;
  __shared__ float factors[kMostPieces];
  float largest = -INFINITY, sum = 0;
  for (std::int64_t s = 0; s < pieces; ++s) largest = fmaxf(largest, partials.maxima[first + s]);
  for (std::int64_t s = threadIdx.x; s < pieces; s += kThreads) factors[s] = expf(partials.maxima[first + s] - largest);
  __syncthreads();
  for (std::int64_t s = 0; s < pieces; ++s) sum += partials.weights[first + s] * factors[s];
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    const float* at = partials.sums + first * width + i;
    float value = 0;
#pragma unroll 8
    for (int s = 0; s < static_cast<int>(pieces); ++s) value = fmaf(at[s * width], factors[s], value);
    y[(token * heads + head) * width + i] = pieces == 0 ? 0.0f : value / sum;
  }
}

constexpr int kColumns = 128;  // a block, one a thread
static_assert(kMostPieces == 64, "a lane has two pieces");

__global__ void __launch_bounds__(kColumns) combine_at_once_kernel(Partials partials, Split split, const std::int32_t* counts,
                                                                   const std::int32_t* positions, float* y, std::int64_t heads, int width) {
  begin_kernel();
  const std::int64_t head = blockIdx.x, token = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % 32, column = static_cast<int>(blockIdx.z) * kColumns + static_cast<int>(threadIdx.x);
  const int count = counts != nullptr ? counts[token] : positions[token] + 1, length = static_cast<int>(split.length);
  const int pieces = min((count + length - 1) / length, static_cast<int>(split.pieces));
  const std::int64_t first = (token * heads + head) * split.pieces;
  float maxima[2], weights[2], factors[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool there = lane + 32 * i < pieces;
    maxima[i] = there ? partials.maxima[first + lane + 32 * i] : -INFINITY;
    weights[i] = there ? partials.weights[first + lane + 32 * i] : 0.0f;
  }
  const float largest = warp_max(fmaxf(maxima[0], maxima[1]));
#pragma unroll
  for (int i = 0; i < 2; ++i) factors[i] = lane + 32 * i < pieces ? expf(maxima[i] - largest) : 0.0f;
  const float sum = warp_sum(weights[0] * factors[0] + weights[1] * factors[1]);
  const float* at = partials.sums + first * width + min(column, width - 1);
  float value = 0;
#pragma unroll 16
  for (int s = 0; s < pieces; ++s) {
    const float factor = __shfl_sync(kAllLanes, s < 32 ? factors[0] : factors[1], s % 32);
    value = fmaf(at[std::int64_t{s} * width], factor, value);
  }
  if (column < width) y[(token * heads + head) * width + column] = pieces == 0 ? 0.0f : value / sum;
}

}  // namespace

void combine_pieces_at_once(const Partials& partials, const Split& split, const std::int32_t* counts, const std::int32_t* positions,
                            float* y, std::int64_t tokens, std::int64_t heads, std::int64_t width, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(heads), static_cast<unsigned>(tokens), blocks_for(width, kColumns));
  launch(combine_at_once_kernel, grid, kColumns, 0, stream, partials, split, counts, positions, y, heads, static_cast<int>(width));
}

void combine_pieces(const Partials& partials, const Split& split, const std::int32_t* counts, const std::int32_t* positions, float* y,
                    std::int64_t tokens, std::int64_t heads, std::int64_t width, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(heads), static_cast<unsigned>(tokens));
  launch(combine_pieces_kernel, grid, kThreads, 0, stream, partials, split, counts, positions, y, heads, width);
}

}  // namespace reckoner::cuda
