// Conversions on the device, bit for bit those of tensor/dtype.h, and sums over a warp or a block in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/instructions.cuh"

namespace reckoner::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float bf16_to_float(std::uint32_t bits) { return __uint_as_float(bits << 16); }

__device__ inline std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Shifted so that exponent and mantissa lie where a float has them, a code is its value times 2^-120, denormals too.
__device__ inline float e4m3_to_float(std::uint32_t bits) {
  const float value = __uint_as_float((bits & 0x7fu) << 20) * 0x1p120f;
  const float magnitude = (bits & 0x7fu) == 0x7fu ? __uint_as_float(0x7fc00000u) : value;
  return (bits & 0x80u) != 0 ? -magnitude : magnitude;
}

__device__ inline float e8m0_to_float(std::uint32_t bits) {
  if (bits == 255) return __uint_as_float(0x7fc00000u);
  return __uint_as_float(bits == 0 ? 0x00400000u : bits << 23);
}

// The same way: times 2^-126.
__device__ inline float e2m1_to_float(std::uint32_t code) { return __uint_as_float((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f; }

__device__ inline std::uint8_t float_to_e4m3(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7f800000u) return 0x7f;
  if (magnitude >= 0x43e00000u) return static_cast<std::uint8_t>(sign | 0x7e);  // 448
  if (magnitude >= 0x3c800000u) {                                               // 2^-6
    const std::uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
    return static_cast<std::uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
  }
  const std::uint32_t steps = __float_as_uint(__uint_as_float(magnitude) + 0x1p14f) - __float_as_uint(0x1p14f);
  return static_cast<std::uint8_t>(sign | steps);
}

template <class T>
__device__ T warp_sum(T value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

// Over a block of kThreads, for every thread; `scratch` holds a float a warp and may be used again after the next barrier.
template <int kThreads, class T>
__device__ T block_sum(T value, T* scratch) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  T sum = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += scratch[warp];
  __syncthreads();
  return sum;
}

}  // namespace reckoner::cuda
