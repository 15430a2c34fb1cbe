// Hardware as people write it ("8x RTX PRO 6000"), and what a prediction needs to know of it beyond DeviceInfo.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/hardware.h"

namespace reckoner::doctor {

struct NamedHardware {
  int count = 0;                             // of GPUs; 0: the processor
  const HardwareProfile* profile = nullptr;  // of each; nullptr: the processor
};

// "cpu", "h200", "8x RTX PRO 6000", "2 x rtx-5090": case, spaces and the maker's name do not matter. The error lists what is known.
Result<NamedHardware> parse_hardware(std::string_view text);

// The profile of a GPU by what it calls itself ("NVIDIA H100 80GB HBM3"); nullptr: none.
const HardwareProfile* profile_of(std::string_view device_name);

enum class Link : std::uint8_t { pcie, nvlink, none };

// Published peaks of a profile.
struct Peaks {
  double bf16_tflops = 0;   // dense, sums in FP32
  Link link = Link::none;   // between GPUs of one host
  double link_gbs = 0;      // of it, one way, in 1e9 bytes a second
  bool is_unified = false;  // the GPU's memory is the system's
};
std::optional<Peaks> peaks_of(const HardwareProfile& profile);

}  // namespace reckoner::doctor
