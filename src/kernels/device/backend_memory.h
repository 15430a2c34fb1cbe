// BackendMemory: the memory of one device of a backend. Remembers the first failure, as DeviceMemory promises.
#pragma once

#include <memory>
#include <mutex>

#include "kernels/cuda/backend.h"

namespace reckoner {

class BackendMemory final : public DeviceMemory {
 public:
  // `backend` must outlive it.
  BackendMemory(const DeviceBackend& backend, int device, DeviceInfo info) : backend_(backend), device_(device), info_(std::move(info)) {}

  const DeviceInfo& info() const override { return info_; }
  Status status() const override;
  std::int64_t free_bytes() override;
  std::byte* allocate(std::int64_t bytes) override;
  void release(std::byte* memory) override;
  std::byte* allocate_pinned(std::int64_t bytes) override;
  void release_pinned(std::byte* memory) override;
  Stream make_stream() override;
  void release_stream(Stream stream) override;
  void copy_in(Stream stream, std::byte* device, const std::byte* host, std::int64_t bytes) override;
  void copy_out(Stream stream, std::byte* host, const std::byte* device, std::int64_t bytes) override;
  void copy_within(Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) override;
  void fill(Stream stream, std::byte* device, std::uint8_t value, std::int64_t bytes) override;
  void synchronise(Stream stream) override;
  Status begin_capture(Stream stream) override { return backend_.begin_capture(device_, stream); }
  Result<DeviceGraph> end_capture(Stream stream) override { return backend_.end_capture(device_, stream); }
  void launch(DeviceGraph graph, Stream stream) override;
  void release_graph(DeviceGraph graph) override;

 private:
  bool failed() const;
  void keep(Error error);
  void keep(Status status) {
    if (!status.ok()) keep(std::move(status).error());
  }

  const DeviceBackend& backend_;
  const int device_;
  const DeviceInfo info_;
  mutable std::mutex mutex_;
  Status status_;
};

}  // namespace reckoner
