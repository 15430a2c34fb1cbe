// CountingMemory: the memory of a device that is only described. What would be allocated is counted; nothing can be run there.
#pragma once

#include <cstdint>
#include <map>

#include "tensor/device_memory.h"

namespace reckoner::doctor {

class CountingMemory final : public DeviceMemory {
 public:
  explicit CountingMemory(DeviceInfo info) : info_(std::move(info)) {}

  // What is allocated now.
  std::int64_t device_bytes() const { return device_bytes_; }
  std::int64_t pinned_bytes() const { return pinned_bytes_; }

  const DeviceInfo& info() const override { return info_; }
  Status status() const override { return {}; }
  std::int64_t free_bytes() override { return info_.cuda.memory_bytes - device_bytes_; }
  std::byte* allocate(std::int64_t bytes) override;
  void release(std::byte* memory) override;
  // Of the host, and real: plans write into it.
  std::byte* allocate_pinned(std::int64_t bytes) override;
  void release_pinned(std::byte* memory) override;

  Stream make_stream() override { return nullptr; }
  void release_stream(Stream) override {}
  void copy_in(Stream, std::byte*, const std::byte*, std::int64_t) override {}
  void copy_out(Stream, std::byte*, const std::byte*, std::int64_t) override {}
  void copy_within(Stream, std::byte*, const std::byte*, std::int64_t) override {}
  void fill(Stream, std::byte*, std::uint8_t, std::int64_t) override {}
  void synchronise(Stream) override {}
  Status begin_capture(Stream) override { return Error{"nothing runs on a device that is only described"}; }
  Result<DeviceGraph> end_capture(Stream) override { return Error{"nothing runs on a device that is only described"}; }
  void launch(DeviceGraph, Stream) override {}
  void release_graph(DeviceGraph) override {}

 private:
  DeviceInfo info_;
  // Addresses that nobody reads or writes.
  std::uintptr_t next_ = std::uintptr_t{1} << 44;
  std::map<std::byte*, std::int64_t> device_;
  std::map<std::byte*, std::int64_t> pinned_;
  std::int64_t device_bytes_ = 0;
  std::int64_t pinned_bytes_ = 0;
};

}  // namespace reckoner::doctor
