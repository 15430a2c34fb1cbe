#include "diagnose/trace/host_reader.h"

#include <algorithm>
#include <cstring>

namespace reckoner::trace {
namespace {

constexpr std::int64_t kStagingBytes = 4 << 20;

}  // namespace

void HostReader::read(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (on_host()) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  if (staging_.size_bytes() == 0) staging_ = Buffer(kStagingBytes, memory_, BufferKind::pinned);
  for (std::int64_t done = 0; done < bytes; done += kStagingBytes) {
    const std::int64_t part = std::min(kStagingBytes, bytes - done);
    if (memory_->status().ok()) {
      memory_->copy_out(stream_, staging_.data(), from + done, part);
      memory_->synchronise(stream_);
    }
    if (memory_->status().ok()) {
      std::memcpy(to + done, staging_.data(), static_cast<std::size_t>(part));
    } else {
      std::memset(to + done, 0, static_cast<std::size_t>(part));
    }
  }
}

Tensor HostReader::here(const Tensor& tensor) {
  if (on_host() || tensor.empty()) return tensor;
  if (copy_.size_bytes() < tensor.bytes()) copy_ = Buffer(tensor.bytes());
  read(copy_.data(), tensor.data, tensor.bytes());
  return copy_.tensor(tensor.dtype, tensor.shape);
}

}  // namespace reckoner::trace
