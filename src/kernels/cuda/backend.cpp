// The functions of the backend over the CUDA runtime.
#include "kernels/cuda/backend.h"

#include <backend_abi.h>  // generated: a hash of the headers that the program and backends share
#include <cuda_runtime.h>

#include <fstream>
#include <string>

#include "kernels/cuda/catalogue.h"
#include "kernels/cuda/ranks/ranks.h"

namespace reckoner {
namespace {

Status checked(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());  // one that is not for good must not be reported again by the next call
  return Error{std::string("CUDA, ") + what + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")",
               "if the GPU works otherwise (nvidia-smi), report this as a bug; --device cpu works without it"};
}

cudaStream_t stream_of(Stream stream) { return static_cast<cudaStream_t>(stream); }
std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

// The driver's own version; where that cannot be read, the CUDA version that it is for.
std::string driver_version() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  if (file >> version) return version;
  int cuda = 0;
  static_cast<void>(cudaDriverGetVersion(&cuda));
  return "CUDA " + std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
}

Result<DeviceInfo> describe(int device) {
  cudaDeviceProp properties{};
  TRY(checked(cudaGetDeviceProperties(&properties, device), "reading a device's properties"));
  int clock_khz = 0;
  int bus_bits = 0;
  // Not every driver tells: then the bandwidth is not known.
  if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, device) != cudaSuccess) clock_khz = 0;
  if (cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, device) != cudaSuccess) bus_bits = 0;
  return DeviceInfo{.name = properties.name,
                    .cuda = {.major = properties.major,
                             .minor = properties.minor,
                             .multiprocessors = properties.multiProcessorCount,
                             .shared_bytes_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin),
                             .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                             .l2_bytes = properties.l2CacheSize,
                             .memory_gbs = 2.0 * clock_khz * 1e3 * bus_bits / 8 / 1e9},
                    .driver = driver_version()};
}

Result<std::vector<DeviceInfo>> devices() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  std::vector<DeviceInfo> found;
  if (code == cudaErrorNoDevice) return found;
  if (code == cudaErrorInsufficientDriver) {
    return Error{"there is no NVIDIA driver here, or it is older than CUDA 13 needs (580)",
                 "install the driver from version 580 on, and check it with nvidia-smi"};
  }
  TRY(checked(code, "counting devices"));
  for (int device = 0; device < count; ++device) {
    DeviceInfo info = TRY(describe(device));
    found.push_back(std::move(info));
  }
  return found;
}

Status use(int device) { return checked(cudaSetDevice(device), "choosing a device"); }

Result<std::int64_t> free_bytes(int device) {
  TRY(use(device));
  std::size_t free = 0;
  std::size_t total = 0;
  TRY(checked(cudaMemGetInfo(&free, &total), "asking for free memory"));
  return static_cast<std::int64_t>(free);
}

Result<std::byte*> allocate(int device, std::int64_t bytes) {
  TRY(use(device));
  void* memory = nullptr;
  TRY(checked(cudaMalloc(&memory, size(bytes)), "allocating memory"));
  return static_cast<std::byte*>(memory);
}

Status release(int device, std::byte* memory) {
  TRY(use(device));
  return checked(cudaFree(memory), "freeing memory");
}

Result<std::byte*> allocate_pinned(int device, std::int64_t bytes) {
  TRY(use(device));
  void* memory = nullptr;
  TRY(checked(cudaHostAlloc(&memory, size(bytes), cudaHostAllocDefault), "allocating pinned memory"));
  return static_cast<std::byte*>(memory);
}

Status release_pinned(int device, std::byte* memory) {
  TRY(use(device));
  return checked(cudaFreeHost(memory), "freeing pinned memory");
}

Result<Stream> make_stream(int device) {
  TRY(use(device));
  cudaStream_t stream = nullptr;
  TRY(checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
  return static_cast<Stream>(stream);
}

Status release_stream(int device, Stream stream) {
  TRY(use(device));
  return checked(cudaStreamDestroy(stream_of(stream)), "ending a stream");
}

Status copy(int device, Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes, cudaMemcpyKind kind) {
  TRY(use(device));
  return checked(cudaMemcpyAsync(to, from, size(bytes), kind, stream_of(stream)), "copying");
}

Status copy_in(int device, Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) {
  return copy(device, stream, to, from, bytes, cudaMemcpyHostToDevice);
}

Status copy_out(int device, Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) {
  return copy(device, stream, to, from, bytes, cudaMemcpyDeviceToHost);
}

Status copy_within(int device, Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) {
  return copy(device, stream, to, from, bytes, cudaMemcpyDeviceToDevice);
}

Status fill(int device, Stream stream, std::byte* memory, std::uint8_t value, std::int64_t bytes) {
  TRY(use(device));
  return checked(cudaMemsetAsync(memory, value, size(bytes), stream_of(stream)), "filling memory");
}

Status synchronise(int device, Stream stream) {
  TRY(use(device));
  // A launch that was refused reports nowhere else.
  TRY(checked(cudaGetLastError(), "launching a kernel"));
  return checked(cudaStreamSynchronize(stream_of(stream)), "running kernels");
}

Status begin_capture(int device, Stream stream) {
  TRY(use(device));
  TRY(checked(cudaGetLastError(), "launching a kernel"));
  return checked(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal), "beginning to record a step");
}

Result<DeviceGraph> end_capture(int device, Stream stream) {
  TRY(use(device));
  const Status launches = checked(cudaGetLastError(), "recording a kernel");
  cudaGraph_t graph = nullptr;
  const Status ended = checked(cudaStreamEndCapture(stream_of(stream), &graph), "recording a step");
  cudaGraphExec_t executable = nullptr;
  Status made = ended.ok() ? checked(cudaGraphInstantiate(&executable, graph, 0), "making a graph of a step") : ended;
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  if (!launches.ok()) {
    if (executable != nullptr) static_cast<void>(cudaGraphExecDestroy(executable));
    return launches.error();
  }
  if (!made.ok()) return std::move(made).error();
  return static_cast<DeviceGraph>(executable);
}

Status launch(int device, DeviceGraph graph, Stream stream) {
  TRY(use(device));
  return checked(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream)), "running a recorded step");
}

Status release_graph(int device, DeviceGraph graph) {
  TRY(use(device));
  return checked(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)), "freeing a recorded step");
}

}  // namespace
}  // namespace reckoner

extern "C" __attribute__((visibility("default"))) const reckoner::DeviceBackend* reckoner_cuda_backend() {
  using namespace reckoner;
  static const DeviceBackend backend = {.abi = kBackendAbi,
                                        .devices = devices,
                                        .catalogue = cuda_catalogue,
                                        .free_bytes = free_bytes,
                                        .allocate = allocate,
                                        .release = release,
                                        .allocate_pinned = allocate_pinned,
                                        .release_pinned = release_pinned,
                                        .make_stream = make_stream,
                                        .release_stream = release_stream,
                                        .copy_in = copy_in,
                                        .copy_out = copy_out,
                                        .copy_within = copy_within,
                                        .fill = fill,
                                        .synchronise = synchronise,
                                        .begin_capture = begin_capture,
                                        .end_capture = end_capture,
                                        .launch = launch,
                                        .release_graph = release_graph,
                                        .connect = connect_gpus,
                                        .all_reduce = add_over_gpus,
                                        .disconnect = disconnect_gpu};
  return &backend;
}
