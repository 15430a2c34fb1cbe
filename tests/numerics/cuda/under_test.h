// The CUDA kernels. A test's arguments are copied to the device and back around each run.
#pragma once

#include <gtest/gtest.h>

#include "device_copies.h"
#include "kernels/cuda/catalogue.h"

namespace reckoner {

// What a kernel may ask for at a context of 128k: enough tokens at a time to fill the device.
inline constexpr std::int64_t kModestBytes = 256 << 20;

DeviceInfo device_under_test();
inline Catalogue catalogue_under_test() { return cuda_catalogue(); }
DeviceArena& arena_under_test();
// Waits for the device; what went wrong there, or nothing.
std::string device_error();

// Runs a kernel as a step does, with a workspace of exactly the size that it asks for. `threads` are the processor's: they change nothing.
template <class Args>
void run_kernel(const Kernel<Args>& kernel, const Args& args, int threads) {
  ASSERT_TRUE(check(args).ok()) << check(args).error().what;
  DeviceArena& arena = arena_under_test();
  arena.reset();
  DeviceCopies copies(arena);
  Args device_args = args;
  visit(device_args, copies);
  ThreadPool pool(1);
  Lane lane{pool, arena.take(kernel.workspace_bytes(args, threads))};
  kernel.run(device_args, lane);
  ASSERT_EQ(device_error(), "") << kernel.name;
  EXPECT_TRUE(arena.untouched()) << kernel.name << " wrote beyond a tensor or its workspace";
  copies.bring_back();
}

}  // namespace reckoner
