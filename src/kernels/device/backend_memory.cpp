#include "kernels/device/backend_memory.h"

#include <fmt/format.h>

namespace reckoner {

Status BackendMemory::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

bool BackendMemory::failed() const {
  const std::lock_guard lock(mutex_);
  return !status_.ok();
}

void BackendMemory::keep(Error error) {
  const std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = std::move(error);
}

std::int64_t BackendMemory::free_bytes() {
  Result<std::int64_t> bytes = backend_.free_bytes(device_);
  if (bytes.ok()) return *bytes;
  keep(std::move(bytes).error());
  return 0;
}

std::byte* BackendMemory::allocate(std::int64_t bytes) {
  if (failed()) return nullptr;
  Result<std::byte*> memory = backend_.allocate(device_, bytes);
  if (memory.ok()) return *memory;
  const Result<std::int64_t> free = backend_.free_bytes(device_);
  keep({fmt::format("{}: {:.2f} GB of its memory are wanted, {:.2f} GB are free ({})", info_.name, static_cast<double>(bytes) / 1e9,
                    free.ok() ? static_cast<double>(*free) / 1e9 : 0.0, memory.error().what),
        "ask for a smaller --context or --cache-tokens, close what else uses the GPU, or use --device cpu"});
  return nullptr;
}

std::byte* BackendMemory::allocate_pinned(std::int64_t bytes) {
  if (failed()) return nullptr;
  Result<std::byte*> memory = backend_.allocate_pinned(device_, bytes);
  if (memory.ok()) return *memory;
  keep({fmt::format("{:.2f} GB of pinned host memory could not be had: {}", static_cast<double>(bytes) / 1e9, memory.error().what),
        "free host memory, raise the limit on locked memory (ulimit -l), or use --device cpu"});
  return nullptr;
}

Stream BackendMemory::make_stream() {
  if (failed()) return nullptr;
  Result<Stream> stream = backend_.make_stream(device_);
  if (stream.ok()) return *stream;
  keep(std::move(stream).error());
  return nullptr;
}

// What was given out goes back in any case, and failing to is of no consequence: the owner is on its way out.
void BackendMemory::release(std::byte* memory) { keep(backend_.release(device_, memory)); }
void BackendMemory::release_pinned(std::byte* memory) { keep(backend_.release_pinned(device_, memory)); }
void BackendMemory::release_stream(Stream stream) {
  if (stream != nullptr) keep(backend_.release_stream(device_, stream));
}
void BackendMemory::release_graph(DeviceGraph graph) { keep(backend_.release_graph(device_, graph)); }

void BackendMemory::copy_in(Stream stream, std::byte* device, const std::byte* host, std::int64_t bytes) {
  if (!failed()) keep(backend_.copy_in(device_, stream, device, host, bytes));
}

void BackendMemory::copy_out(Stream stream, std::byte* host, const std::byte* device, std::int64_t bytes) {
  if (!failed()) keep(backend_.copy_out(device_, stream, host, device, bytes));
}

void BackendMemory::copy_within(Stream stream, std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (!failed()) keep(backend_.copy_within(device_, stream, to, from, bytes));
}

void BackendMemory::fill(Stream stream, std::byte* device, std::uint8_t value, std::int64_t bytes) {
  if (!failed()) keep(backend_.fill(device_, stream, device, value, bytes));
}

void BackendMemory::synchronise(Stream stream) {
  if (!failed()) keep(backend_.synchronise(device_, stream));
}

void BackendMemory::launch(DeviceGraph graph, Stream stream) {
  if (!failed()) keep(backend_.launch(device_, graph, stream));
}

}  // namespace reckoner
