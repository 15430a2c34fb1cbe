// Tensor: a view of contiguous, row-major elements that somebody else owns. Buffer: an owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace reckoner {

struct Tensor {
  std::byte* data = nullptr;  // not necessarily aligned: a checkpoint puts tensors where it likes
  DType dtype = DType::f32;
  Shape shape;

  bool empty() const { return data == nullptr; }
  std::int64_t bytes() const { return shape.elements() * size_bytes(dtype); }
  std::int64_t dim(int axis) const { return shape[axis]; }

  // Elements as T, which must have the element size. Only for tensors that we allocated (aligned).
  template <class T>
  T* as() const {
    CHECK(static_cast<std::int64_t>(sizeof(T)) == size_bytes(dtype));
    return reinterpret_cast<T*>(data);
  }
  float* f32() const {
    CHECK(dtype == DType::f32);
    return reinterpret_cast<float*>(data);
  }
  std::int32_t* i32() const {
    CHECK(dtype == DType::i32);
    return reinterpret_cast<std::int32_t*>(data);
  }

  // The same memory from row `first`, `count` rows of the outermost axis.
  Tensor rows(std::int64_t first, std::int64_t count) const {
    Tensor part = *this;
    std::int64_t row_elements = 1;
    Shape shape_of_part{count};
    for (int axis = 1; axis < shape.rank(); ++axis) {
      row_elements *= shape[axis];
      shape_of_part.push_back(shape[axis]);
    }
    if (part.data != nullptr) part.data += first * row_elements * size_bytes(dtype);
    part.shape = shape_of_part;
    return part;
  }
  // The same elements under another shape.
  Tensor reshaped(const Shape& other) const {
    CHECK(other.elements() == shape.elements());
    Tensor view = *this;
    view.shape = other;
    return view;
  }
};

class DeviceMemory;

// Where a Buffer's memory is taken from and goes back to. pinned: the host's memory, for transfers to and from a device.
enum class BufferKind : std::uint8_t { device, pinned };

struct FreeBuffer {
  DeviceMemory* device = nullptr;
  BufferKind kind = BufferKind::device;
  void operator()(std::byte* memory) const;
};

// Owned memory, not initialised. The host's: aligned to 64 bytes, huge pages asked for when it is large. A device's: aligned to 256, and
// not there when the device failed (DeviceMemory::status).
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size_bytes);
  // nullptr: the host's. The device must outlive the buffer.
  Buffer(std::int64_t size_bytes, DeviceMemory* memory, BufferKind kind = BufferKind::device);

  std::byte* data() const { return memory_.get(); }
  std::int64_t size_bytes() const { return size_bytes_; }
  Tensor tensor(DType dtype, const Shape& shape, std::int64_t offset_bytes = 0) const;

 private:
  std::unique_ptr<std::byte, FreeBuffer> memory_;
  std::int64_t size_bytes_ = 0;
};

}  // namespace reckoner
