// Puts a model's weights into the memory of a device.
#pragma once

#include <cstdint>
#include <functional>

#include "base/threads.h"
#include "model/loader.h"
#include "tensor/device_memory.h"

namespace reckoner {

// Device memory that the weights take.
std::int64_t upload_bytes(const Model& model);

// Copies every weight as it lies in the checkpoint: rows by row_bytes, each matrix and its scales aligned to 256 bytes, the experts of one
// matrix of a layer at equal distances; of a rank's share its rows and columns. Reads and copies in parallel, and checks block scales as
// read_weights does. What is returned refers to the names of `model`. Errors: too little memory (found before anything is read), a bad
// scale, a device that failed.
Result<ModelWeights> upload_weights(const Model& model, DeviceMemory& memory, ThreadPool& pool,
                                    const std::function<void(std::int64_t done, std::int64_t total)>& progress);

}  // namespace reckoner
