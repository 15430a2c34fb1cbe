// What this machine can do at most, measured: the yardsticks that speeds are given in.
#pragma once

#include "base/threads.h"
#include "tensor/device_info.h"

namespace reckoner {

// Bytes a second that all threads of the pool together read from memory: the best of a few passes over a buffer larger than the caches.
// Takes about a tenth of a second and 256 MB for as long.
double measure_read_bandwidth(ThreadPool& pool);

// Multiply-adds a second of all threads together, in registers: float FMA, and BF16 dot products (0 where the processor has none).
struct MultiplyAddPeaks {
  double f32 = 0;
  double bf16 = 0;
};
MultiplyAddPeaks measure_multiply_adds(ThreadPool& pool, const DeviceInfo& device);

}  // namespace reckoner
