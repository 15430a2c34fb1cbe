// index_select on CPUs: scores of every earlier token by register tiles of keys x heads, then a radix select of the best.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner {

std::vector<Kernel<IndexSelectArgs>> index_select_kernels();

}  // namespace reckoner
