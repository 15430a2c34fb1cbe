// Where a command computes: on the processor or on a GPU, as --device says and the machine allows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/model_config.h"
#include "ops/kernel.h"

namespace reckoner {

struct DeviceChoice {
  std::string name = "cpu";                        // or "cuda:0"
  std::unique_ptr<DeviceMemory> memory = nullptr;  // of the GPU
  Catalogue (*catalogue)() = nullptr;              // of the GPU
  std::string library = {};                        // where the GPU's kernels are from
  std::string why;
};

// The GPU of a name that DeviceChoice had: "cuda:0".
Result<DeviceChoice> open_device(const std::string& name);

// `asked`: "auto", "cpu", "cuda" or "cuda:N". auto takes the first GPU if there is a backend and `needed_bytes` are free on it, else the
// processor. Errors: a GPU is asked for and there is none, or it has less memory.
Result<DeviceChoice> choose_device(const std::string& asked, std::int64_t needed_bytes);

}  // namespace reckoner
