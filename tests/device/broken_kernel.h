// Kernels that do what admission is there to find.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "ops/kernel.h"

namespace reckoner {

// Finds the memory of the first output and of the first input.
struct FirstTensors {
  Tensor first_in, first_out;

  void in(const char*, const Tensor& tensor) {
    if (first_in.empty()) first_in = tensor;
  }
  void out(const char*, const Tensor& tensor) {
    if (first_out.empty()) first_out = tensor;
  }
  void inout(const char* name, const Tensor& tensor) { out(name, tensor); }
  void weight(const char*, const Weight&) {}
  void weights(const char*, std::span<const Weight>) {}
  void places(const TokenPlaces&) {}
  void cache_in(const char*, const CacheView&) {}
  void cache_out(const char*, const CacheView&) {}
};

// Spoils what the reference wrote: "wrong" one element, "past" the byte behind the output, "before" the byte in front of it, "nan" one
// element, "input" an element of the first input; "hang" and "crash" are done instead. Anything else: nothing is wrong.
template <class Args>
void spoil(const Args& args, std::string_view how) {
  FirstTensors found;
  visit(args, found);
  std::byte* const out = found.first_out.data;
  const std::int64_t bytes = found.first_out.bytes();
  if (out == nullptr && how != "input") return;  // what is stored in a cache
  if (how == "wrong") out[bytes - 2] ^= std::byte{0x40};
  if (how == "past") out[bytes] = std::byte{1};
  const volatile std::int64_t before = -1;  // the compiler must not see it
  if (how == "before") out[before] = std::byte{1};
  if (how == "nan") reinterpret_cast<float*>(out)[bytes / 8] = std::numeric_limits<float>::quiet_NaN();
  if (how == "input") found.first_in.data[1] ^= std::byte{1};
  while (how == "hang") sleep(1);
  if (how == "crash") std::abort();
}

}  // namespace reckoner
