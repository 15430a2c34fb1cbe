// What numerics tests are made of: seeded random tensors and weights in every format, the same that admission is made of. `under_test.h`
// comes from the folder of the device whose kernels are tested (cpu, cuda): each test runs on all of them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "diagnose/admission/owned.h"
#include "ops/kernel.h"
#include "quant/format.h"
#include "under_test.h"

namespace reckoner {

using namespace admission;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Calls body(kernel, key) for every kernel of the op, but the reference, that the device under test can run, and each key that it serves.
template <class Args, class Body>
void for_each_kernel(Body&& body) {
  const DeviceInfo device = device_under_test();
  const Catalogue catalogue = catalogue_under_test();
  for (const Kernel<Args>& kernel : catalogue.of<Args>()) {
    if (kernel.name.ends_with(".reference")) continue;
    for (int format = 0; format < kQuantFormats; ++format) {
      for (const Precision precision : {Precision::exact, Precision::fast}) {
        const Key key{precision, static_cast<QuantFormat>(format)};
        if (!kernel.supports(key, device).yes) continue;
        SCOPED_TRACE(std::string(kernel.name) + (precision == Precision::exact ? ", exact" : ", fast"));
        body(kernel, key);
      }
    }
  }
}

}  // namespace reckoner
