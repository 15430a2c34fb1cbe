// Weight: a matrix [rows, cols] = [out, in] in a published format, as it lies in the checkpoint; never expanded as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace reckoner {

enum class QuantFormat : std::uint8_t { f32, f16, bf16, nvfp4 };
inline constexpr int kQuantFormats = 4;

struct Weight {
  QuantFormat format = QuantFormat::f32;
  std::int64_t rows = 0;              // out
  std::int64_t cols = 0;              // in
  const std::byte* data = nullptr;    // rows x row_bytes, not necessarily aligned
  const std::byte* scales = nullptr;  // block scales, where the format has them
  float scale = 1.0f;                 // one factor for the whole tensor
  std::string_view name = {};         // the checkpoint's name of the module, for messages
};

// Rows [first, first + count) of `w`.
Weight row_range(const Weight& w, std::int64_t first, std::int64_t count);

}  // namespace reckoner
