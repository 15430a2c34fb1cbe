// What every CUDA kernel's host side needs: the stream, launches, and what a device must offer. Nobody here looks at the error of a
// launch: a device that failed ends the step, which whoever waits for the stream finds out.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "kernels/cuda/common/instructions.cuh"
#include "ops/kernel.h"

namespace reckoner::cuda {

// Kernels that ask for no more run on every architecture that we support.
inline constexpr std::int64_t kPortableSharedBytes = 101'376;

inline cudaStream_t stream_of(const Lane& lane) { return static_cast<cudaStream_t>(lane.stream); }

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}
inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// A kernel may be started before the one that stands ahead of it in the stream has ended (programmatic dependent launch, from compute
// capability 9.0 on): each calls wait_for_previous() before it touches what another kernel reads or writes, which is all but weights. Once
// all its blocks have called let_next_begin() the next may start. Kernels that fill the device do that when they are nearly done: blocks
// that come early are placed where there is room, not where there will be least to do.
__device__ __forceinline__ void begin_kernel() {
  let_next_begin();
  wait_for_previous();
}

// Of the calling thread's device.
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  static_cast<void>(cudaGetDevice(&device));
  static_cast<void>(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}
inline int multiprocessors() { return std::max(device_attribute(cudaDevAttrMultiProcessorCount), 1); }

// Asked once: the devices of one machine are taken to be alike.
inline bool launches_overlap() {
  static const bool yes = device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
  return yes;
}

template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared_bytes, cudaStream_t stream,
            std::type_identity_t<Parameters>... args) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = launches_overlap() ? 1 : 0;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, args...));
}

// What a block may have without allow_shared(), what a kernel declares itself included.
inline constexpr std::int64_t kPlainSharedBytes = 48 << 10;

// mma.sync on BF16, cp.async: from 8.0 on. `shared_bytes`: the most that a block takes.
inline Support supports_portable(const DeviceInfo& device, std::int64_t shared_bytes) {
  Support support{.shared_bytes = shared_bytes};
  if (device.cuda.major < 8) {
    support.reason = "needs a CUDA device of compute capability 8.0 or later";
  } else if (device.cuda.shared_bytes_per_block < shared_bytes) {
    support.reason = "takes " + std::to_string(shared_bytes) + " bytes of shared memory a block, and this device has " +
                     std::to_string(device.cuda.shared_bytes_per_block);
  }
  support.yes = support.reason.empty();
  return support;
}
// For any key.
template <std::int64_t kSharedBytes = 0>
Support supports_any(const Key&, const DeviceInfo& device) {
  return supports_portable(device, kSharedBytes);
}

// Lets a kernel have so much dynamic shared memory. Needed where that and what the kernel declares itself are more than 48 KiB together, so
// it is asked for well below. Cheap enough to call before each launch, and not recorded by a graph.
template <class Function>
void allow_shared(Function* function, std::int64_t bytes) {
  if (bytes <= kPlainSharedBytes / 2) return;
  static_cast<void>(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

template <class Args>
std::int64_t no_workspace(const Args&, int) {
  return 0;
}

}  // namespace reckoner::cuda
