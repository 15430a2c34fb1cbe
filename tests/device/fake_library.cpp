// The fake GPU as a library that the program can open: RECKONER_CUDA_LIBRARY=build/release/fake_cuda.so. $FAKE_GPU_MB: its memory;
// $FAKE_GPU_STEPS: steps that it does before it fails; $FAKE_GPU_COUNT: of GPUs;
// $FAKE_GPU_BROKEN: FakeGpu's `broken`.
#include <cstdlib>

#include "fake_backend.h"

extern "C" __attribute__((visibility("default"))) const reckoner::DeviceBackend* reckoner_cuda_backend() {
  const char* const megabytes = std::getenv("FAKE_GPU_MB");
  const char* const steps = std::getenv("FAKE_GPU_STEPS");
  reckoner::FakeGpu gpu;
  if (megabytes != nullptr) gpu.memory_bytes = std::atoll(megabytes) << 20;
  if (const char* const count = std::getenv("FAKE_GPU_COUNT")) gpu.count = std::atoi(count);
  if (const char* const broken = std::getenv("FAKE_GPU_BROKEN")) gpu.broken = broken;
  const reckoner::DeviceBackend* const backend = reckoner::fake_backend(gpu);
  if (steps != nullptr) reckoner::fake_fail_after(std::atoll(steps));
  return backend;
}
