// HostReader: brings what an op reads and writes to the host, wherever it lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/device_memory.h"
#include "tensor/tensor.h"

namespace reckoner::trace {

class HostReader {
 public:
  // nullptr: the bytes are in the host's memory already.
  explicit HostReader(DeviceMemory* memory = nullptr, Stream stream = nullptr) : memory_(memory), stream_(stream) {}

  bool on_host() const { return memory_ == nullptr; }
  // Waits for what is on the stream. After a failure of the device the bytes are zero: its status() says so.
  void read(std::byte* to, const std::byte* from, std::int64_t bytes);
  // The tensor in the host's memory: itself, or a copy that is valid until the next call.
  Tensor here(const Tensor& tensor);

 private:
  DeviceMemory* memory_;
  Stream stream_;
  Buffer staging_;  // pinned
  Buffer copy_;
};

}  // namespace reckoner::trace
