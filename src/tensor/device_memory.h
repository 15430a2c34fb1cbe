// DeviceMemory: the memory of a GPU, and how bytes get there and back. Where a DeviceMemory* is nullptr, tensors lie in the host's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "tensor/device_info.h"

namespace reckoner {

// A queue of work of a device, done in order; nullptr is none.
using Stream = void*;
// What was put on a stream between begin_capture() and end_capture(), to be done again as a whole.
using DeviceGraph = void*;

// A failure is remembered: from then on nothing is done, and status() says what happened first. So a step need not look after each call,
// but whoever reads what came back must look before. Any thread may call; memory that the device gives out must not be read or written by
// the host, but goes through copies.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  virtual const DeviceInfo& info() const = 0;
  virtual Status status() const = 0;
  virtual std::int64_t free_bytes() = 0;

  // Device memory, aligned to 256 bytes, not initialised; nullptr after a failure.
  virtual std::byte* allocate(std::int64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
  // Host memory that the device reads and writes without the processor's help; nullptr after a failure.
  virtual std::byte* allocate_pinned(std::int64_t bytes) = 0;
  virtual void release_pinned(std::byte* memory) = 0;

  virtual Stream make_stream() = 0;
  virtual void release_stream(Stream stream) = 0;

  // Put on the stream; done when synchronise() returns. Host memory is pinned, and stays as it is until then.
  virtual void copy_in(Stream stream, std::byte* device, const std::byte* host, std::int64_t bytes) = 0;
  virtual void copy_out(Stream stream, std::byte* host, const std::byte* device, std::int64_t bytes) = 0;
  virtual void copy_within(Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
  virtual void fill(Stream stream, std::byte* device, std::uint8_t value, std::int64_t bytes) = 0;
  // Waits for what is on the stream; errors of kernels show here.
  virtual void synchronise(Stream stream) = 0;

  // Between the two, work for the stream is recorded and not done. A failure to record is no failure of the device: end_capture() then
  // returns the reason, and the stream can be used as before.
  virtual Status begin_capture(Stream stream) = 0;
  virtual Result<DeviceGraph> end_capture(Stream stream) = 0;
  virtual void launch(DeviceGraph graph, Stream stream) = 0;
  virtual void release_graph(DeviceGraph graph) = 0;
};

}  // namespace reckoner
