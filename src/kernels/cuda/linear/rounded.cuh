// Activations rounded to BF16 once, as operands: of each eight columns the pairs in the order in which a chunk's codes come out.
#pragma once

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/chunk.cuh"

namespace reckoner::cuda {

// Piece i is of the columns [8 i, 8 i + 8).
template <class C>
__device__ uint4 rounded_piece(const float* x, std::int64_t piece) {
  return round_piece<C>(reinterpret_cast<const float4*>(x)[2 * piece], reinterpret_cast<const float4*>(x)[2 * piece + 1]);
}

template <class C>
__global__ void round_rows_kernel(const float* x, uint4* out, std::int64_t pieces) {
  begin_kernel();
  const std::int64_t piece = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (piece < pieces) out[piece] = rounded_piece<C>(x, piece);
}

template <QuantFormat kFormat>
void round_rows(const float* x, std::uint16_t* out, std::int64_t elements, cudaStream_t stream) {
  launch(round_rows_kernel<Chunk<kFormat>>, blocks_for(elements / 8, 256), 256, 0, stream, x, reinterpret_cast<uint4*>(out), elements / 8);
}

// Tokens that are rounded at a time, so that the workspace stays modest.
inline std::int64_t part_tokens(std::int64_t cols) {
  constexpr std::int64_t kMostBytes = 24 << 20;
  return std::max<std::int64_t>(kMostBytes / (2 * cols) / 128, 1) * 128;
}

}  // namespace reckoner::cuda
