#include "tensor/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "tensor/device_memory.h"

namespace reckoner {

Buffer::Buffer(std::int64_t size_bytes) : size_bytes_(size_bytes) {
  CHECK(size_bytes >= 0);
  constexpr std::int64_t kHugePage = 2 << 20;
  const std::int64_t alignment = size_bytes >= kHugePage ? kHugePage : 64;
  const std::int64_t rounded = (std::max<std::int64_t>(size_bytes, 1) + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(rounded));
  CHECK(memory != nullptr, "out of memory");
  if (alignment == kHugePage) madvise(memory, static_cast<std::size_t>(rounded), MADV_HUGEPAGE);
  memory_.reset(static_cast<std::byte*>(memory));
}

Buffer::Buffer(std::int64_t size_bytes, DeviceMemory* memory, BufferKind kind) {
  if (memory == nullptr) {
    *this = Buffer(size_bytes);
    return;
  }
  CHECK(size_bytes >= 0);
  const std::int64_t at_least = std::max<std::int64_t>(size_bytes, 1);
  std::byte* const bytes = kind == BufferKind::pinned ? memory->allocate_pinned(at_least) : memory->allocate(at_least);
  memory_ = {bytes, FreeBuffer{.device = memory, .kind = kind}};
  size_bytes_ = size_bytes;
}

Tensor Buffer::tensor(DType dtype, const Shape& shape, std::int64_t offset_bytes) const {
  const Tensor view{.data = data() + offset_bytes, .dtype = dtype, .shape = shape};
  CHECK(offset_bytes >= 0 && offset_bytes + view.bytes() <= size_bytes_);
  return view;
}

void FreeBuffer::operator()(std::byte* memory) const {
  if (device == nullptr) return std::free(memory);
  kind == BufferKind::pinned ? device->release_pinned(memory) : device->release(memory);
}

}  // namespace reckoner
