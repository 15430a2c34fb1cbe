// The CUDA backend as the program sees it: a table of functions in a library that is opened at run time, so that one program runs with and
// without a GPU. Plain C++ types cross over, so both sides must be of one build: `abi` says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/kernel.h"

namespace reckoner {

// One rank's end of a connection between devices.
using RankLink = void*;
struct RankLinks {
  std::vector<RankLink> links;  // one a device
  std::string library;          // what connects them: "NCCL 2.27.7"
};

// Devices are numbered from 0. Every function may be called from any thread, and makes the device the calling thread's.
// The first failure of a call is returned and not kept; what a kernel did wrong shows at the next synchronise().
struct DeviceBackend {
  std::uint64_t abi = 0;  // of the headers that this was compiled with; looked at before anything else

  // Error: no driver, or one that is too old. No GPU is no error.
  Result<std::vector<DeviceInfo>> (*devices)() = nullptr;
  // Best first; the program does not need the library for anything else to plan for a described device.
  Catalogue (*catalogue)() = nullptr;

  Result<std::int64_t> (*free_bytes)(int device) = nullptr;
  Result<std::byte*> (*allocate)(int device, std::int64_t bytes) = nullptr;
  Status (*release)(int device, std::byte* memory) = nullptr;
  Result<std::byte*> (*allocate_pinned)(int device, std::int64_t bytes) = nullptr;
  Status (*release_pinned)(int device, std::byte* memory) = nullptr;

  Result<Stream> (*make_stream)(int device) = nullptr;
  Status (*release_stream)(int device, Stream stream) = nullptr;
  Status (*copy_in)(int device, Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) = nullptr;
  Status (*copy_out)(int device, Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) = nullptr;
  Status (*copy_within)(int device, Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) = nullptr;
  Status (*fill)(int device, Stream stream, std::byte* memory, std::uint8_t value, std::int64_t bytes) = nullptr;
  Status (*synchronise)(int device, Stream stream) = nullptr;

  Status (*begin_capture)(int device, Stream stream) = nullptr;
  Result<DeviceGraph> (*end_capture)(int device, Stream stream) = nullptr;
  Status (*launch)(int device, DeviceGraph graph, Stream stream) = nullptr;
  Status (*release_graph)(int device, DeviceGraph graph) = nullptr;

  // Connects devices, one a rank. Error: no library that does, or it cannot.
  Result<RankLinks> (*connect)(const std::vector<int>& devices) = nullptr;
  // Puts the sum over all ranks into `values` (float32), on the stream; every rank does the same sums in the same order. Can be recorded.
  Status (*all_reduce)(int device, RankLink link, Stream stream, std::byte* values, std::int64_t count) = nullptr;
  // Ends a rank's link: whatever it still does on a stream stops at once. Then waits until no recorded step that uses the link is left.
  Status (*disconnect)(int device, RankLink link) = nullptr;
};

// The one symbol of the library: returns the table, which lives as long as the library is open.
inline constexpr const char* kCudaBackendSymbol = "reckoner_cuda_backend";
using CudaBackendFunction = const DeviceBackend* (*)();

}  // namespace reckoner
