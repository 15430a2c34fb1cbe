// The kernels of the processor.
#pragma once

#include <gtest/gtest.h>

#include "diagnose/admission/guarded_bytes.h"
#include "kernels/cpu/catalogue.h"

namespace reckoner {

// What a kernel may ask for at a context of 128k: the scores of a few tokens at a time.
inline constexpr std::int64_t kModestBytes = 8 * 131072 * 4 + (2 << 20);

inline DeviceInfo device_under_test() { return detect_cpu(); }
inline Catalogue catalogue_under_test() { return cpu_catalogue(); }

// Runs a kernel as a step does: on `threads` threads, with a workspace of exactly the size that it asks for.
template <class Args>
void run_kernel(const Kernel<Args>& kernel, const Args& args, int threads) {
  ASSERT_TRUE(check(args).ok()) << check(args).error().what;
  ThreadPool pool(threads);
  const admission::GuardedBytes workspace(kernel.workspace_bytes(args, threads));
  Lane lane{pool, workspace.data()};
  kernel.run(args, lane);
  EXPECT_TRUE(workspace.untouched()) << kernel.name << " wrote beyond its workspace";
}

}  // namespace reckoner
