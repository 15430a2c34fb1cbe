// attend_latent, attend_grouped and index_select on CUDA devices.
#pragma once

#include <vector>

#include "kernels/cuda/attention/split.cuh"
#include "ops/kernel.h"

namespace reckoner::cuda {

// For any shape and cache dtype, in float.
Kernel<AttendLatentArgs> attend_latent_generic();
Kernel<AttendGroupedArgs> attend_grouped_generic();
Kernel<IndexSelectArgs> index_select_generic();

// Where fits_index_mma() a few launches over many blocks; else as the generic one.
Kernel<IndexSelectArgs> index_select_split();

// For BF16 rows of 512 + 64 elements.
bool fits_latent_mma(const AttendLatentArgs& args);
std::int64_t latent_mma_workspace(const AttendLatentArgs& args);
void run_attend_latent_mma(const AttendLatentArgs& args, CombinePieces* combine, Lane& lane);

// For BF16 rows of 512 + 64 elements and at most eight heads.
bool fits_latent_gather(const AttendLatentArgs& args);
std::int64_t latent_gather_workspace(const AttendLatentArgs& args);
void run_attend_latent_gather(const AttendLatentArgs& args, Lane& lane);

// Best first.
std::vector<Kernel<AttendLatentArgs>> attend_latent_kernels();
std::vector<Kernel<AttendGroupedArgs>> attend_grouped_kernels();
std::vector<Kernel<IndexSelectArgs>> index_select_kernels();

}  // namespace reckoner::cuda
