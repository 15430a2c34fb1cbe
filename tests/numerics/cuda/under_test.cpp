#include "under_test.h"

#include <cuda_runtime.h>

#include <memory>

namespace reckoner {

DeviceInfo device_under_test() {
  cudaDeviceProp properties{};
  DeviceInfo device;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return device;
  device.name = properties.name;
  device.cuda = {.major = properties.major,
                 .minor = properties.minor,
                 .multiprocessors = properties.multiProcessorCount,
                 .shared_bytes_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin),
                 .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                 .l2_bytes = properties.l2CacheSize};
  return device;
}

DeviceArena& arena_under_test() {
  static const auto arena = std::make_unique<DeviceArena>(std::int64_t{1} << 30);
  return *arena;
}

std::string device_error() {
  cudaError_t error = cudaGetLastError();  // of the launches
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

namespace {

// Without a GPU nothing could fail.
class NeedsDevice : public testing::Environment {
 public:
  void SetUp() override {
    if (!device_under_test().cuda.present()) GTEST_SKIP() << "no CUDA device here";
  }
};

const auto* const kNeedsDevice = testing::AddGlobalTestEnvironment(new NeedsDevice);

}  // namespace
}  // namespace reckoner
