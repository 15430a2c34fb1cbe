// Where a command computes: on the processor or on a GPU, as --device says and the machine allows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/model_config.h"
#include "kernels/cuda/backend.h"

namespace reckoner {

struct DeviceChoice {
  std::string name = "cpu";                        // or "cuda:0"
  std::unique_ptr<DeviceMemory> memory = nullptr;  // of the GPU
  Catalogue (*catalogue)() = nullptr;              // of the GPU
  std::string library = {};                        // where the GPU's kernels are from
  const DeviceBackend* backend = nullptr;          // of the GPU
  int number = 0;                                  // of the GPU: 1 in "cuda:1"
  std::string why;
};

// The GPU of a name that DeviceChoice had: "cuda:0".
Result<DeviceChoice> open_device(const std::string& name);

// What a command needs: GPUs one after the other, one a rank, with so much memory free on each.
struct DeviceNeeds {
  int ranks = 1;
  std::int64_t bytes = 0;
};

// `asked`: "auto", "cpu", "cuda" or "cuda:N". auto takes the first GPUs if there is a backend, GPUs for all ranks, and the memory that they
// need, else the processor, of which there is one choice for all ranks. Errors: a GPU is asked for and there is none, there are too few for
// the ranks, they are not alike, or one has less memory.
Result<std::vector<DeviceChoice>> choose_devices(const std::string& asked, const DeviceNeeds& needs);

}  // namespace reckoner
