// What kernels and the backend use of CUDA, for the emulated GPU of machine.h. In the place of CUDA's header of the same name.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include "machine.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// A block's: all its threads are one thread here, and it is the only block on it (but for clusters, whose kernels declare none).
#define __shared__ static thread_local

// ---- types ----

struct int2 {
  int x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// ---- arithmetic ----

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return static_cast<std::common_type_t<A, B>>(a) < static_cast<std::common_type_t<A, B>>(b) ? a : b;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return static_cast<std::common_type_t<A, B>>(a) < static_cast<std::common_type_t<A, B>>(b) ? b : a;
}
using std::isfinite;
using std::isnan;
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
// Compiled without contraction, these are what they say.
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }
inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1.0f : 0.0f; }  // of NaN 0
inline int __ffs(int bits) { return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1; }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned pick) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) out |= static_cast<unsigned>(bytes >> (pick >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return out;
}

template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

// ---- lanes and blocks ----

namespace reckoner::emulated {

template <class T>
struct Exchange {
  T give{}, got{};
  unsigned from = 0;
  bool is_there = false;
};

template <class T, class Combine>
T over_lanes(unsigned mask, T value, Combine) {
  Exchange<T> own{.give = value};
  meet_lanes(mask, &own, [](void* const* lanes) RECKONER_NO_RACE {
    bool first = true;
    T all{};
    for (int lane = 0; lane < 32; ++lane) {
      if (lanes[lane] == nullptr) continue;
      const T give = static_cast<Exchange<T>*>(lanes[lane])->give;
      all = first ? give : Combine()(all, give);
      first = false;
    }
    for (int lane = 0; lane < 32; ++lane) {
      if (lanes[lane] != nullptr) static_cast<Exchange<T>*>(lanes[lane])->got = all;
    }
  });
  return own.got;
}

// The value of lane `from`, or the own one if `from` is no lane.
template <class T>
T from_lane(unsigned mask, T value, unsigned from) {
  Exchange<T> own{.give = value, .from = from};
  meet_lanes(mask, &own, [](void* const* lanes) RECKONER_NO_RACE {
    for (int lane = 0; lane < 32; ++lane) {
      if (lanes[lane] == nullptr) continue;
      auto& at = *static_cast<Exchange<T>*>(lanes[lane]);
      const auto* giver = at.from < 32 ? static_cast<Exchange<T>*>(lanes[at.from]) : &at;
      at.is_there = giver != nullptr;
      if (at.is_there) at.got = giver->give;
    }
  });
  if (!own.is_there) stop("a lane asks one that is not at the same instruction");
  return own.got;
}

struct Greatest {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct Least {
  template <class T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

}  // namespace reckoner::emulated

inline void __syncthreads() { reckoner::emulated::meet_block(0, 0); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  int own = 0;
  reckoner::emulated::meet_lanes(
      mask, &own, [](void* const*) {}, reckoner::emulated::Memory::ordered);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return reckoner::emulated::from_lane(mask, value, static_cast<unsigned>(lane) % 32);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return reckoner::emulated::from_lane(mask, value, static_cast<unsigned>(reckoner::emulated::lane() ^ bits));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  const auto own = static_cast<unsigned>(reckoner::emulated::lane());
  return reckoner::emulated::from_lane(mask, value, own >= by ? own - by : own);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return reckoner::emulated::over_lanes(mask, predicate != 0 ? 1u << reckoner::emulated::lane() : 0u, std::bit_or<unsigned>());
}
template <class T>
T __reduce_add_sync(unsigned mask, T value) {
  return reckoner::emulated::over_lanes(mask, value, std::plus<T>());
}
template <class T>
T __reduce_max_sync(unsigned mask, T value) {
  return reckoner::emulated::over_lanes(mask, value, reckoner::emulated::Greatest());
}
template <class T>
T __reduce_min_sync(unsigned mask, T value) {
  return reckoner::emulated::over_lanes(mask, value, reckoner::emulated::Least());
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  reckoner::emulated::Exchange<T> own{.give = value};
  reckoner::emulated::meet_lanes(mask, &own, [](void* const* lanes) RECKONER_NO_RACE {
    using Own = reckoner::emulated::Exchange<T>;
    for (int lane = 0; lane < 32; ++lane) {
      if (lanes[lane] == nullptr) continue;
      auto& at = *static_cast<Own*>(lanes[lane]);
      for (int other = 0; other < 32; ++other) {
        if (lanes[other] != nullptr && static_cast<Own*>(lanes[other])->give == at.give) at.from |= 1u << other;
      }
    }
  });
  return own.from;
}

// ---- the runtime ----

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorPeerAccessAlreadyEnabled = 704,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaLaunchAttributeID { cudaLaunchAttributeClusterDimension = 4, cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;

struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount, l2CacheSize;
  std::size_t sharedMemPerBlockOptin, totalGlobalMem;
};

namespace reckoner::emulated {
class Stream;
class Graph;
}  // namespace reckoner::emulated
using cudaStream_t = reckoner::emulated::Stream*;
using cudaGraph_t = reckoner::emulated::Graph*;
using cudaGraphExec_t = reckoner::emulated::Graph*;

struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
    struct {
      unsigned x, y, z;
    } clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t code);
const char* cudaGetErrorName(cudaError_t code);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);

namespace reckoner::emulated {
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> body);
cudaError_t allow_shared(const void* kernel, int bytes);
// A device's own copy of a variable of kernels.
void* variable_of_device(const void* variable, std::size_t bytes);
}  // namespace reckoner::emulated

template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <class T>
cudaError_t cudaGetSymbolAddress(void** address, const T& variable) {
  *address = reckoner::emulated::variable_of_device(&variable, sizeof(T));
  return cudaSuccess;
}
template <class Function>
cudaError_t cudaFuncSetAttribute(Function* kernel, cudaFuncAttribute, int bytes) {
  return reckoner::emulated::allow_shared(reinterpret_cast<const void*>(kernel), bytes);
}
template <class... Parameters>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), std::type_identity_t<Parameters>... args) {
  return reckoner::emulated::launch(*config, reinterpret_cast<const void*>(kernel),
                                    [kernel, all = std::make_tuple(std::move(args)...)] { std::apply(kernel, all); });
}
