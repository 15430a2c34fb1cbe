// CPU kernels of `latent_query` and `latent_value`, best first.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner {

std::vector<Kernel<LatentQueryArgs>> latent_query_kernels();
std::vector<Kernel<LatentValueArgs>> latent_value_kernels();

}  // namespace reckoner
