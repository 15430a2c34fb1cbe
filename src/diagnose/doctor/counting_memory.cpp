#include "diagnose/doctor/counting_memory.h"

#include <cstdlib>

#include "base/check.h"

namespace reckoner::doctor {
namespace {

constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::int64_t forget(std::map<std::byte*, std::int64_t>& all, std::byte* memory) {
  const auto found = all.find(memory);
  CHECK(found != all.end(), "memory that was not allocated here");
  const std::int64_t bytes = found->second;
  all.erase(found);
  return bytes;
}

}  // namespace

std::byte* CountingMemory::allocate(std::int64_t bytes) {
  auto* const memory = reinterpret_cast<std::byte*>(next_);
  next_ += static_cast<std::uintptr_t>(aligned(bytes) + kAlignment);
  device_[memory] = bytes;
  device_bytes_ += bytes;
  return memory;
}

void CountingMemory::release(std::byte* memory) {
  if (memory != nullptr) device_bytes_ -= forget(device_, memory);
}

std::byte* CountingMemory::allocate_pinned(std::int64_t bytes) {
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<std::size_t>(aligned(bytes))));
  CHECK(memory != nullptr || bytes == 0);
  if (memory == nullptr) return nullptr;
  pinned_[memory] = bytes;
  pinned_bytes_ += bytes;
  return memory;
}

void CountingMemory::release_pinned(std::byte* memory) {
  if (memory == nullptr) return;
  pinned_bytes_ -= forget(pinned_, memory);
  std::free(memory);
}

}  // namespace reckoner::doctor
