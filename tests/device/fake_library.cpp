// The fake GPU as a library that the program can open: RECKONER_CUDA_LIBRARY=build/release/fake_cuda.so. $FAKE_GPU_MB: its memory.
#include <cstdlib>

#include "fake_backend.h"

extern "C" __attribute__((visibility("default"))) const reckoner::DeviceBackend* reckoner_cuda_backend() {
  const char* const megabytes = std::getenv("FAKE_GPU_MB");
  reckoner::FakeGpu gpu;
  if (megabytes != nullptr) gpu.memory_bytes = std::atoll(megabytes) << 20;
  return reckoner::fake_backend(gpu);
}
