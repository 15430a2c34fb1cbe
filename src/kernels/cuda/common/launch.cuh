// What every CUDA kernel's host side needs: the stream, launches, and what a device must offer. Nobody here looks at the error of a
// launch: a device that failed ends the step, which whoever waits for the stream finds out.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "ops/kernel.h"

namespace reckoner::cuda {

// Kernels that ask for no more run on every architecture that we support.
inline constexpr std::int64_t kPortableSharedBytes = 101'376;

inline cudaStream_t stream_of(const Lane& lane) { return static_cast<cudaStream_t>(lane.stream); }

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}
inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// What a block may have without allow_shared().
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

// Lets a kernel have more than 48 KiB of dynamic shared memory. Cheap enough to call before each launch, and not recorded by a graph.
template <class Function>
void allow_shared(Function* function, std::int64_t bytes) {
  if (bytes <= 48 * 1024) return;
  static_cast<void>(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

// ---- beginning early (from 9.0 on) ----
// A kernel that is launched with launch_early() may begin while the one before it still runs, once all blocks of that have called
// let_next_begin() or ended. It reads what others wrote, and writes at all, only behind wait_for_previous(). Without launch_early() both do
// nothing.

__device__ inline void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <class... Parameters, class... Arguments>
void launch_early(void (*function)(Parameters...), const dim3& grid, int threads, std::int64_t shared_bytes, cudaStream_t stream,
                  const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  static_cast<void>(cudaLaunchKernelEx(&config, function, static_cast<Parameters>(arguments)...));
}

template <class Args>
std::int64_t no_workspace(const Args&, int) {
  return 0;
}

}  // namespace reckoner::cuda
