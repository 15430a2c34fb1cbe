#include "tensor/device_info.h"

#include <fstream>

namespace reckoner {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace

DeviceInfo detect_cpu() {
  DeviceInfo device{.name = cpu_name()};
#if defined(__x86_64__)
  __builtin_cpu_init();
  device.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  device.avx512 = device.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  device.avx512_bf16 = device.avx512 && __builtin_cpu_supports("avx512bf16");
  device.avx512_vnni = device.avx512 && __builtin_cpu_supports("avx512vnni");
#endif
  return device;
}

DeviceInfo limited_to(DeviceInfo device, const std::string& highest) {
  const bool avx512 = highest == "avx512";
  const bool avx2 = avx512 || highest == "avx2";
  device.avx2 &= avx2;
  device.avx512 &= avx512;
  device.avx512_bf16 &= avx512;
  device.avx512_vnni &= avx512;
  return device;
}

}  // namespace reckoner
