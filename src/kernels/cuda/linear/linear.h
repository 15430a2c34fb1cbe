// linear and linear_experts on CUDA devices.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner::cuda {

// For any shape and format, in float.
Kernel<LinearArgs> linear_generic();
Kernel<LinearExpertsArgs> linear_experts_generic();

// Best first.
std::vector<Kernel<LinearArgs>> linear_kernels();
std::vector<Kernel<LinearExpertsArgs>> linear_experts_kernels();

}  // namespace reckoner::cuda
