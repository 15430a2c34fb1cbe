#include "fill.h"

#include <cuda_runtime.h>

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

}  // namespace

void fill_random_bytes(std::byte* to, std::int64_t count, std::uint32_t seed) { fill(to, count, seed, Byte()); }
void fill_e4m3_scales(std::byte* to, std::int64_t count, std::uint32_t seed) { fill(to, count, seed, Scale()); }
void fill_floats(float* to, std::int64_t count, std::uint32_t seed) { fill(to, count, seed, Float()); }
void fill_bf16(std::uint16_t* to, std::int64_t count, std::uint32_t seed) { fill(to, count, seed, Half()); }

}  // namespace reckoner
