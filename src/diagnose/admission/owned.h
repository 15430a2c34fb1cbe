// Tensors and weights with their memory: what cases are made of.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "diagnose/admission/guarded_bytes.h"
#include "diagnose/admission/random.h"
#include "quant/format.h"
#include "tensor/dtype.h"

namespace reckoner::admission {

inline constexpr double kUlp = 0x1p-24;  // what rounding a float loses at most, relative

// A tensor with its memory.
class OwnedTensor {
 public:
  OwnedTensor(DType dtype, const Shape& shape)
      : bytes_(shape.elements() * size_bytes(dtype)), tensor_{.data = bytes_.data(), .dtype = dtype, .shape = shape} {}
  OwnedTensor(const Shape& shape, const std::vector<float>& values) : OwnedTensor(DType::f32, shape) {
    CHECK(static_cast<std::int64_t>(values.size()) == shape.elements());
    std::copy(values.begin(), values.end(), tensor_.f32());
  }
  OwnedTensor(const Shape& shape, const std::vector<std::int32_t>& values) : OwnedTensor(DType::i32, shape) {
    CHECK(static_cast<std::int64_t>(values.size()) == shape.elements());
    std::copy(values.begin(), values.end(), tensor_.i32());
  }
  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  bool untouched_around() const { return bytes_.untouched(); }

 private:
  GuardedBytes bytes_;
  Tensor tensor_;
};

// A weight with its memory: in heap blocks of exactly its size (so that AddressSanitizer sees every byte read beyond), off by
// `misalignment` bytes. With `first_row` it is the last rows of a matrix that has so many before it.
class OwnedWeight {
 public:
  OwnedWeight(QuantFormat format, std::int64_t rows, std::int64_t cols, Random& random, std::int64_t first_row = 0) {
    const std::int64_t all = first_row + rows;
    const PackedMatrix packed(format, "test", with_uneven_blocks(random.floats(all * cols), random), all, cols);
    weight_ = row_range(packed.weight(), first_row, rows);
    weight_.name = "test.weight";
    const FormatInfo& layout = info(format);
    weight_.data = keep(data_, weight_.data, rows * layout.row_bytes(cols), random.below(16));
    if (weight_.scales == nullptr) return;
    const std::int64_t scale_rows = (all + layout.block_rows - 1) / layout.block_rows;
    weight_.scales = keep(scales_, weight_.scales, scale_rows * layout.scale_row_bytes(cols), 1 + random.below(15));
  }
  OwnedWeight(OwnedWeight&&) = default;
  OwnedWeight& operator=(OwnedWeight&&) = default;
  const Weight& operator*() const { return weight_; }
  const Weight* operator->() const { return &weight_; }
  // A row's codes and the scales that it has, perhaps not alone.
  std::byte* row(std::int64_t row) {
    return data_.data() + (weight_.data - data_.data()) + row * info(weight_.format).row_bytes(weight_.cols);
  }
  std::byte* scales_of(std::int64_t row) { return scales_.data() + (scale_row(weight_, row) - scales_.data()); }

 private:
  // Scales from the smallest denormal to the largest.
  static std::vector<float> with_uneven_blocks(std::vector<float> values, Random& random) {
    for (std::size_t block = 0; block < values.size() / 16; ++block) {
      const float factor = std::ldexp(1.0f, static_cast<int>(-random.below(20)));
      for (std::size_t i = 0; i < 16; ++i) values[block * 16 + i] *= factor;
    }
    return values;
  }
  static const std::byte* keep(std::vector<std::byte>& memory, const std::byte* bytes, std::int64_t size, std::int64_t misalignment) {
    memory.reserve(static_cast<std::size_t>(size + misalignment));
    memory.resize(static_cast<std::size_t>(misalignment));
    memory.insert(memory.end(), bytes, bytes + size);
    return memory.data() + misalignment;
  }
  std::vector<std::byte> data_, scales_;
  Weight weight_;
};

// Rows of `w` as floats.
inline std::vector<float> dequantised(const Weight& w) {
  std::vector<float> values(static_cast<std::size_t>(w.rows * w.cols));
  for (std::int64_t row = 0; row < w.rows; ++row) info(w.format).dequantise(w, row, 0, w.cols, values.data() + row * w.cols);
  return values;
}

inline std::vector<float> values_of(const Tensor& tensor) { return {tensor.f32(), tensor.f32() + tensor.shape.elements()}; }

}  // namespace reckoner::admission
