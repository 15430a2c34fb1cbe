// A GPU for machines without one: the backend's table over host memory that the host may not touch. Work is put on streams and done only
// when somebody waits, kernels are the ops' references, and every pointer is looked at. What works here keeps the rules of a device.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/backend.h"

namespace reckoner {

struct FakeGpu {
  std::int64_t memory_bytes = std::int64_t{4} << 30;
  bool refuses_capture = false;
  bool has_driver = true;
  int count = 1;                   // of devices
  bool lacks_linear_bf16 = false;  // no kernel for linear layers of BF16
  bool is_other_build = false;
  std::string broken = {};  // "linear wrong": the op's best kernel "linear.broken" does what is said (broken_kernel.h); empty: none
};

// What was asked of it since fake_backend() was called.
struct FakeCounts {
  std::int64_t kernels = 0;  // put on a stream or recorded
  std::int64_t copies_in = 0;
  std::int64_t copies_out = 0;
  std::int64_t recorded = 0;
  std::int64_t replayed = 0;
  std::int64_t sums = 0;             // over ranks, put on a stream or recorded
  std::int64_t allocated_bytes = 0;  // now
};

// Behaves as `gpu` says from now on. One at a time: everything that the one before gave out has been released.
const DeviceBackend* fake_backend(const FakeGpu& gpu = {});
FakeCounts fake_counts();
// The device does `steps` more steps, then fails.
void fake_fail_after(std::int64_t steps);

}  // namespace reckoner
