// Clusters: blocks that run at the same time and read each other's shared memory. From compute capability 9.0 on.
#pragma once

#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace reckoner::cuda {

// As launch(), with every `blocks` neighbouring blocks of the grid's first dimension as a cluster.
template <class... Parameters>
void launch_clusters(void (*kernel)(Parameters...), dim3 grid, unsigned blocks, unsigned threads, std::size_t shared_bytes,
                     cudaStream_t stream, std::type_identity_t<Parameters>... args) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {blocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, args...));
}

// Lets a kernel have clusters of sixteen blocks (eight are there always), and says whether one of them fits on the device.
template <class Function>
bool allow_large_clusters(Function* function, unsigned threads, std::size_t shared_bytes) {
  static_cast<void>(cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {16, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = 16;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int fitting = 0;
  return cudaOccupancyMaxActiveClusters(&fitting, function, &config) == cudaSuccess && fitting > 0;
}

// Until all threads of the cluster are here; what they wrote before is there to be read.
__device__ __forceinline__ void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// What stands at `own`, which points into this block's shared memory, in that of the cluster's block `block`.
__device__ __forceinline__ int load_of_block(const int* own, int block) {
  int value = 0;
#if __CUDA_ARCH__ >= 900
  std::uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(block));
  asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
#endif
  return value;
}
__device__ __forceinline__ float load_of_block(const float* own, int block) {
  return __int_as_float(load_of_block(reinterpret_cast<const int*>(own), block));
}

}  // namespace reckoner::cuda
