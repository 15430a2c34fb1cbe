// The CUDA kernels. A test's arguments are copied to the device and back around each run.
#pragma once

#include <gtest/gtest.h>

#include "diagnose/admission/copies.h"
#include "kernels/cuda/catalogue.h"

namespace reckoner {

// What a kernel may ask for at a context of 128k: enough tokens at a time to fill the device.
inline constexpr std::int64_t kModestBytes = 256 << 20;

DeviceInfo device_under_test();
inline Catalogue catalogue_under_test() { return cuda_catalogue(); }
admission::Arena& arena_under_test();
// What went wrong on the device so far, or nothing.
std::string device_error();

// Runs a kernel as a step does, with a workspace of exactly the size that it asks for. `threads` are the processor's: they change nothing.
template <class Args>
void run_kernel(const Kernel<Args>& kernel, const Args& args, int threads) {
  ASSERT_TRUE(check(args).ok()) << check(args).error().what;
  admission::Arena& arena = arena_under_test();
  arena.reset();
  admission::Copies copies(arena);
  Args device_args = args;
  visit(device_args, copies);
  std::byte* const workspace = arena.take(kernel.workspace_bytes(args, threads));
  ASSERT_TRUE(copies.complete() && workspace != nullptr) << "the arena is too small";
  ThreadPool pool(1);
  Lane lane{pool, workspace};
  kernel.run(device_args, lane);
  const std::vector<std::byte> bytes = arena.bytes();
  ASSERT_EQ(device_error(), "") << kernel.name;
  EXPECT_TRUE(arena.untouched(bytes)) << kernel.name << " wrote beyond a tensor or its workspace";
  copies.bring_back(bytes);
}

}  // namespace reckoner
