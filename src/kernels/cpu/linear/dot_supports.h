// What the cores need of a machine, as the `supports` functions of kernels.
#pragma once

#include "kernels/cpu/supports.h"

namespace reckoner {

template <QuantFormat format>
Support dot_format(const Key& key) {
  if (key.format == format) return {};
  return {.yes = false, .reason = "is for another weight format"};
}

template <QuantFormat format>
Support dot_needs_avx2(const Key& key, const DeviceInfo& device) {
  const Support machine = needs_avx2(key, device);
  return machine.yes ? dot_format<format>(key) : machine;
}

template <QuantFormat format>
Support dot_needs_avx512(const Key& key, const DeviceInfo& device) {
  const Support machine = needs_avx512(key, device);
  return machine.yes ? dot_format<format>(key) : machine;
}

template <QuantFormat format>
Support dot_needs_avx512bf16(const Key& key, const DeviceInfo& device) {
  if (!device.avx512_bf16) return {.yes = false, .reason = "needs AVX-512 BF16"};
  if (key.precision == Precision::exact) return {.yes = false, .reason = "rounds activations to BF16; precision exact keeps them float"};
  return dot_format<format>(key);
}

}  // namespace reckoner
