// What tests of ops share that read or write caches.
#pragma once

#include <algorithm>
#include <numeric>

#include "cases.h"
#include "diagnose/admission/owned_cache.h"

namespace reckoner {

// body(kernel) for every kernel of the op, but the reference, that the device under test can run: for ops whose kernels serve every key.
template <class Args, class Body>
void for_each_keyless_kernel(Body&& body) {
  const DeviceInfo device = device_under_test();
  const Catalogue catalogue = catalogue_under_test();
  for (const Kernel<Args>& kernel : catalogue.of<Args>()) {
    if (kernel.name.ends_with(".reference") || !kernel.supports({}, device).yes) continue;
    SCOPED_TRACE(kernel.name);
    body(kernel);
  }
}

inline std::vector<std::byte> bytes_of(const Tensor& tensor) { return {tensor.data, tensor.data + tensor.bytes()}; }

// Runs the kernel on several numbers of threads; `outputs` must hold the same bytes after each run. `reset` prepares a run.
template <class Args, class Reset>
void run_on_any_threads(const Kernel<Args>& kernel, const Args& args, const std::vector<Tensor>& outputs, const Reset& reset) {
  std::vector<std::vector<std::byte>> first;
  for (const int threads : {1, 2, 3, 5}) {
    reset();
    run_kernel(kernel, args, threads);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (threads == 1) {
        first.push_back(bytes_of(outputs[i]));
      } else {
        EXPECT_EQ(first[i], bytes_of(outputs[i])) << "output " << i << " depends on the number of threads (" << threads << ")";
      }
    }
  }
}

}  // namespace reckoner
