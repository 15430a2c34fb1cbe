// Hardware that can be described instead of present: what a plan for it needs to know.
#pragma once

#include <span>
#include <string_view>

#include "tensor/device_info.h"

namespace reckoner {

struct HardwareProfile {
  std::string_view name;  // "h200"
  std::string_view full_name;
  CudaInfo cuda;
};

// Published figures; memory as the vendor counts it.
std::span<const HardwareProfile> hardware_profiles();
// nullptr: no such profile.
const HardwareProfile* find_profile(std::string_view name);

}  // namespace reckoner
