// latent_query and latent_value on CUDA devices.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner::cuda {

std::vector<Kernel<LatentQueryArgs>> latent_query_kernels();
Kernel<LatentQueryArgs> latent_query_generic();
Kernel<LatentQueryArgs> latent_query_spread();  // for up to eight tokens; else as the generic one
std::vector<Kernel<LatentValueArgs>> latent_value_kernels();

// For fast, BF16 weights and more tokens than a few, in whole pieces.
bool fits_latent_mma(const LatentQueryArgs& args);
bool fits_latent_mma(const LatentValueArgs& args);
void run_latent_mma(const LatentQueryArgs& args, Lane& lane);
void run_latent_mma(const LatentValueArgs& args, Lane& lane);

}  // namespace reckoner::cuda
