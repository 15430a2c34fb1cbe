// Whether a machine has the instructions that a kernel was compiled for: the `supports` of kernels that serve every key.
#pragma once

#include "ops/kernel.h"

namespace reckoner {

inline Support needs_avx2(const Key&, const DeviceInfo& device) {
  return device.avx2 ? Support{} : Support{.yes = false, .reason = "needs AVX2 and FMA"};
}

inline Support needs_avx512(const Key&, const DeviceInfo& device) {
  return device.avx512 ? Support{} : Support{.yes = false, .reason = "needs AVX-512 F, BW, DQ and VL"};
}

}  // namespace reckoner
