#include "kernels/cuda/attention/split.cuh"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = 512;

__global__ void combine_pieces_kernel(Partials partials, Split split, const std::int32_t* counts, const std::int32_t* positions, float* y,
                                      std::int64_t heads, std::int64_t width) {
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

}  // namespace

void combine_pieces(const Partials& partials, const Split& split, const std::int32_t* counts, const std::int32_t* positions, float* y,
                    std::int64_t tokens, std::int64_t heads, std::int64_t width, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(heads), static_cast<unsigned>(tokens));
  combine_pieces_kernel<<<grid, kThreads, 0, stream>>>(partials, split, counts, positions, y, heads, width);
}

}  // namespace reckoner::cuda
