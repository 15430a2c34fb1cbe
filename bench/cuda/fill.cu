#include "fill.h"

#include <cuda_runtime.h>

#include "base/check.h"

namespace reckoner {
namespace {

__device__ std::uint32_t hash(std::uint64_t i, std::uint32_t seed) {
  std::uint64_t x = i * 0x9e3779b97f4a7c15ull + seed;
  x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 29) * 0x94d049bb133111ebull;
  return static_cast<std::uint32_t>(x >> 32);
}

template <class T, class Make>
__global__ void fill_kernel(T* to, std::int64_t count, std::uint32_t seed, Make make) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) to[i] = make(hash(i, seed));
}

template <class T, class Make>
void fill(T* to, std::int64_t count, std::uint32_t seed, Make make) {
  fill_kernel<<<1024, 256>>>(to, count, seed, make);
}

struct Byte {
  __device__ std::byte operator()(std::uint32_t bits) const { return static_cast<std::byte>(bits & 0xffu); }
};
struct Scale {
  __device__ std::byte operator()(std::uint32_t bits) const { return static_cast<std::byte>(0x30u + bits % 16u); }
};
struct Float {
  __device__ float operator()(std::uint32_t bits) const { return static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31f; }
};
struct Half {
  __device__ std::uint16_t operator()(std::uint32_t bits) const { return static_cast<std::uint16_t>(__float_as_uint(Float()(bits)) >> 16); }
};

__global__ void copy_kernel(uint4* to, const uint4* from, std::int64_t count) {
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x * 4 + threadIdx.x;
  uint4 pieces[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i * blockDim.x < count) pieces[i] = from[first + i * blockDim.x];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i * blockDim.x < count) to[first + i * blockDim.x] = pieces[i];
  }
}

}  // namespace

void fill_random_bytes(std::byte* to, std::int64_t count, std::uint32_t seed) { fill(to, count, seed, Byte()); }
void fill_e4m3_scales(std::byte* to, std::int64_t count, std::uint32_t seed) { fill(to, count, seed, Scale()); }
void fill_floats(float* to, std::int64_t count, std::uint32_t seed) { fill(to, count, seed, Float()); }
void fill_bf16(std::uint16_t* to, std::int64_t count, std::uint32_t seed) { fill(to, count, seed, Half()); }

void wait_until_filled() { CHECK(cudaDeviceSynchronize() == cudaSuccess); }

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t count, void* stream) {
  const std::int64_t pieces = count / 16;
  copy_kernel<<<static_cast<unsigned>((pieces + 1023) / 1024), 256, 0, static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4*>(from), pieces);
}

}  // namespace reckoner
