// Opens the CUDA backend, if there is one that fits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/backend.h"

namespace reckoner {

// An opened library; it stays open: what it gave out (kernels, memory) may live longer than whoever opened it.
struct OpenedBackend {
  const DeviceBackend* backend = nullptr;
  std::string path;                 // of the library
  std::vector<DeviceInfo> devices;  // at least one
};

// Looks for reckoner_cuda.so at $RECKONER_CUDA_LIBRARY, or else beside the program and on the library path. The error is one sentence that
// says what is missing: the library, a driver, a GPU, a backend of this build.
Result<OpenedBackend> open_cuda_backend();

// The library alone: what its kernels can do is known without a driver and a GPU.
Result<const DeviceBackend*> open_cuda_library();

// The first for a table that is there already. For tests.
Result<OpenedBackend> accept_backend(const DeviceBackend* backend, const std::string& path);

}  // namespace reckoner
