// Memory that notices writes beyond its end.
#pragma once

#include <cstring>

#include "tensor/tensor.h"

namespace reckoner::admission {

// Memory of exactly `size` bytes, `misalignment` bytes beyond a multiple of 64, between borders that untouched() checks.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::int64_t size, std::int64_t misalignment = 0) : size_(size), buffer_(size + misalignment + 2 * kBorder) {
    std::memset(buffer_.data(), kMark, static_cast<std::size_t>(buffer_.size_bytes()));
    begin_ = buffer_.data() + kBorder + misalignment;
  }
  std::byte* data() const { return begin_; }
  std::int64_t size() const { return size_; }
  bool untouched() const {
    const auto marked = [](const std::byte* first, const std::byte* end) {
      for (; first != end; ++first) {
        if (*first != static_cast<std::byte>(kMark)) return false;
      }
      return true;
    };
    return marked(buffer_.data(), begin_) && marked(begin_ + size_, buffer_.data() + buffer_.size_bytes());
  }

 private:
  static constexpr std::int64_t kBorder = 128;
  static constexpr int kMark = 0xa5;  // as a float of four: -2.9e-16
  std::int64_t size_;
  Buffer buffer_;
  std::byte* begin_;
};

}  // namespace reckoner::admission
