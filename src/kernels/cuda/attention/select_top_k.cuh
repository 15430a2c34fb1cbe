// The best top_k of a row of scores, in ascending order of position: deterministic, ties to the lower position, NaN as minus infinity.
#pragma once

#include "kernels/cuda/common/launch.cuh"

namespace reckoner::cuda {

// For each token: counts[t] = min(position + 1, top_k) and its selected positions. Scores [tokens, stride] are read only of tokens at a
// position >= top_k; the others select all positions up to their own.
void select_top_k(const float* scores, std::int64_t stride, const std::int32_t* positions, std::int64_t tokens, std::int64_t top_k,
                  std::int32_t* counts, std::int32_t* selected, cudaStream_t stream);

}  // namespace reckoner::cuda
