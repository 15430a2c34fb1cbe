// The best top_k of a row of scores as select_top_k.cuh has it, in one launch: a token's blocks are a cluster and keep its scores in
// registers. From compute capability 9.0 on.
#pragma once

#include "kernels/cuda/attention/select_split.cuh"

namespace reckoner::cuda {

inline constexpr std::int64_t kMostClusterScores = 262'144;
bool select_clusters_fit();  // on the first device asked for

// As select_split(), which of `selecting` it needs no counts and no chunks; max_context is above top_k and at most kMostClusterScores.
void select_clusters(const Selecting& selecting, std::int64_t tokens, std::int64_t max_context, cudaStream_t stream);

}  // namespace reckoner::cuda
