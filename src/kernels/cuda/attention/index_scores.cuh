// Scores of index_select through the matrix instruction, where the shape allows it.
#pragma once

#include "kernels/cuda/common/cache.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace reckoner::cuda {

inline constexpr int kMostIndexHeads = 64;
bool fits_index_mma(const IndexSelectArgs& args);
// scores [tokens, max_context] of tokens [first, first + tokens), of which `keys` has the positions and tables; not of those that select
// all.
void index_scores_mma(const IndexSelectArgs& args, const DeviceCache& keys, std::int64_t first, std::int64_t tokens, float* scores,
                      cudaStream_t stream);

}  // namespace reckoner::cuda
