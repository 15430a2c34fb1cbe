#include "under_test.h"

#include <memory>

#include "kernels/cuda/backend.h"
#include "kernels/device/backend_memory.h"

extern "C" const reckoner::DeviceBackend* reckoner_cuda_backend();

namespace reckoner {
namespace {

DeviceMemory& memory_under_test() {
  static const auto memory = std::make_unique<BackendMemory>(*reckoner_cuda_backend(), 0, device_under_test());
  return *memory;
}

}  // namespace

DeviceInfo device_under_test() {
  const Result<std::vector<DeviceInfo>> devices = reckoner_cuda_backend()->devices();
  return devices.ok() && !devices->empty() ? devices->front() : DeviceInfo{};
}

admission::Arena& arena_under_test() {
  static const auto arena = std::make_unique<admission::Arena>(std::int64_t{1} << 30, &memory_under_test(), nullptr);
  return *arena;
}

std::string device_error() {
  const Status status = memory_under_test().status();
  return status.ok() ? "" : status.error().what;
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
