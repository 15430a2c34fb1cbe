// latent_query and latent_value on CUDA devices.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner::cuda {

std::vector<Kernel<LatentQueryArgs>> latent_query_kernels();
std::vector<Kernel<LatentValueArgs>> latent_value_kernels();

}  // namespace reckoner::cuda
