// What feeds the matrix instruction.
#pragma once

#include <cstdint>

#include "kernels/cuda/common/instructions.cuh"

namespace reckoner::cuda {

// A float is the sum of three BF16 numbers, each the upper half of what the ones before leave: no rounding anywhere. Gives the pairs of the
// first part and leaves the rest in `low` and `high`.
__device__ inline std::uint32_t take_pair(float& low, float& high) {
  const std::uint32_t l = __float_as_uint(low), h = __float_as_uint(high);
  low -= __uint_as_float(l & 0xffff0000u);
  high -= __uint_as_float(h & 0xffff0000u);
  return __byte_perm(l, h, 0x7632);
}

// As kParts BF16 pairs: one that is rounded, or three that are exact (two: off by 2^-16).
template <int kParts>
__device__ void split_pair(float low, float high, std::uint32_t (&parts)[kParts]) {
  if constexpr (kParts == 1) {
    parts[0] = round_pair(low, high);
  } else {
#pragma unroll
    for (int part = 0; part < kParts; ++part) parts[part] = take_pair(low, high);
  }
}

}  // namespace reckoner::cuda
