#include "tensor/hardware.h"

#include <algorithm>
#include <array>

namespace reckoner {
namespace {

constexpr std::int64_t kGigabyte = 1'000'000'000;
constexpr std::int64_t kMebibyte = 1 << 20;
// What a block may ask for on compute capability 9.0 and 10.x, and on 8.6, 8.9 and 12.x.
constexpr std::int64_t kLargeShared = 232'448;
constexpr std::int64_t kSmallShared = 101'376;

constexpr CudaInfo gpu(int major, int minor, int multiprocessors, std::int64_t shared, std::int64_t gigabytes, std::int64_t l2_mebibytes,
                       double gbs) {
  return {.major = major,
          .minor = minor,
          .multiprocessors = multiprocessors,
          .shared_bytes_per_block = shared,
          .memory_bytes = gigabytes * kGigabyte,
          .l2_bytes = l2_mebibytes * kMebibyte,
          .memory_gbs = gbs};
}

constexpr std::array kProfiles = {
    HardwareProfile{"h100", "NVIDIA H100 SXM", gpu(9, 0, 132, kLargeShared, 80, 50, 3350)},
    HardwareProfile{"h200", "NVIDIA H200", gpu(9, 0, 132, kLargeShared, 141, 50, 4800)},
    HardwareProfile{"b200", "NVIDIA B200", gpu(10, 0, 148, kLargeShared, 180, 126, 8000)},
    HardwareProfile{"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell", gpu(12, 0, 188, kSmallShared, 96, 128, 1792)},
    HardwareProfile{"rtx-5090", "NVIDIA GeForce RTX 5090", gpu(12, 0, 170, kSmallShared, 32, 96, 1792)},
    HardwareProfile{"rtx-4090", "NVIDIA GeForce RTX 4090", gpu(8, 9, 128, kSmallShared, 24, 72, 1008)},
    HardwareProfile{"gb10", "NVIDIA GB10 (DGX Spark)", gpu(12, 1, 48, kSmallShared, 128, 24, 273)},
};

}  // namespace

std::span<const HardwareProfile> hardware_profiles() { return kProfiles; }

const HardwareProfile* find_profile(std::string_view name) {
  const auto* const found = std::find_if(kProfiles.begin(), kProfiles.end(), [&](const HardwareProfile& one) { return one.name == name; });
  return found == kProfiles.end() ? nullptr : found;
}

}  // namespace reckoner
