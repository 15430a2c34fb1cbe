// DeviceInfo: what a device offers. Kernels state what they need; they never ask for a model name or a generation.
#pragma once

#include <cstdint>
#include <string>

namespace reckoner {

// What a CUDA device offers.
struct CudaInfo {
  int major = 0;  // compute capability; 0: the device is no GPU
  int minor = 0;
  int multiprocessors = 0;
  std::int64_t shared_bytes_per_block = 0;  // that a kernel may ask for
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  double memory_gbs = 0;  // peak, in 1e9 bytes a second; 0: not known

  bool present() const { return major > 0; }
};

struct DeviceInfo {
  std::string name;          // as the device calls itself: "AMD EPYC 9R14"
  bool avx2 = false;         // AVX2, FMA, F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_bf16 = false;  // vdpbf16ps
  bool avx512_vnni = false;  // vpdpbusd
  CudaInfo cuda = {};        // of a GPU; then the above is false
  std::string driver = {};   // of a GPU, its version: "580.95.05"
};

// The processor that this runs on (features that the operating system has switched on too).
DeviceInfo detect_cpu();

// `device` without the instruction sets above `highest` ("avx512", "avx2", "scalar"): to test or compare lesser kernels.
DeviceInfo limited_to(DeviceInfo device, const std::string& highest);

}  // namespace reckoner
