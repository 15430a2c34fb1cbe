// Shape: up to four dimensions, outermost first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace reckoner {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) {
    CHECK(dims.size() <= kMaxRank);
    for (const std::int64_t dim : dims) push_back(dim);
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  // Number of elements; 1 for rank 0.
  std::int64_t elements() const {
    std::int64_t count = 1;
    for (int axis = 0; axis < rank_; ++axis) count *= (*this)[axis];
    return count;
  }
  void push_back(std::int64_t dim) {
    CHECK(rank_ < kMaxRank);
    dims_[static_cast<std::size_t>(rank_++)] = dim;
  }
  bool operator==(const Shape&) const = default;

  // "[128, 6144]"
  std::string to_string() const {
    std::string text = "[";
    for (int axis = 0; axis < rank_; ++axis) text += (axis > 0 ? ", " : "") + std::to_string((*this)[axis]);
    return text + "]";
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_ = {};
  int rank_ = 0;
};

}  // namespace reckoner
