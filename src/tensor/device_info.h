// DeviceInfo: what a device offers. Kernels state what they need; they never ask for a model name or a generation.
#pragma once

#include <string>

namespace reckoner {

struct DeviceInfo {
  std::string name;          // as the device calls itself: "AMD EPYC 9R14"
  bool avx2 = false;         // AVX2, FMA, F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_bf16 = false;  // vdpbf16ps
  bool avx512_vnni = false;  // vpdpbusd
};

// The processor that this runs on (features that the operating system has switched on too).
DeviceInfo detect_cpu();

// `device` without the instruction sets above `highest` ("avx512", "avx2", "scalar"): to test or compare lesser kernels.
DeviceInfo limited_to(DeviceInfo device, const std::string& highest);

}  // namespace reckoner
