// The CPU kernels, best first.
#pragma once

#include "ops/kernel.h"

namespace reckoner {

Catalogue cpu_catalogue();

}  // namespace reckoner
