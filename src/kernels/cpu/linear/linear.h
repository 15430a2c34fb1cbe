// CPU kernels of `linear` and `linear_experts`, best first.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner {

std::vector<Kernel<LinearArgs>> linear_kernels();
std::vector<Kernel<LinearExpertsArgs>> linear_experts_kernels();

}  // namespace reckoner
