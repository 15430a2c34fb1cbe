// The CUDA kernels, best first. Pointers in their arguments are the device's.
#pragma once

#include "ops/kernel.h"

namespace reckoner {

// Without references: what no kernel serves is refused.
Catalogue cuda_catalogue();

}  // namespace reckoner
