// Weight: a matrix [rows, cols] = [out, in] in a published format, as it lies in the checkpoint; never expanded as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace reckoner {

// What a row looks like in memory is said in the file of each format (quant/<format>.h).
enum class QuantFormat : std::uint8_t { f32, f16, bf16, nvfp4, mxfp4, int4_g32, fp8_block, fp8_channel, mxfp8 };
inline constexpr int kQuantFormats = 9;

// Whether the format is anything but plain floats.
inline bool is_quantised(QuantFormat format) { return format > QuantFormat::bf16; }

struct Weight {
  QuantFormat format = QuantFormat::f32;
  std::int64_t rows = 0;              // out
  std::int64_t cols = 0;              // in
  const std::byte* data = nullptr;    // rows x row_bytes, not necessarily aligned
  const std::byte* scales = nullptr;  // block scales, where the format has them: [grid rows] x scale_row_bytes, not necessarily aligned
  float scale = 1.0f;                 // one factor for the whole tensor
  std::int64_t first_row = 0;         // of the matrix that `scales` belongs to: which of its rows is row 0 here
  std::string_view name = {};         // the checkpoint's name of the module, for messages
  // Columns of a larger matrix that were not copied together yet (quant/column_part.h): `data` and `scales` are not there. No kernel sees
  // such a weight.
  const Weight* part_of = nullptr;
  std::int64_t first_col = 0;  // of `part_of`
};

// Rows [first, first + count) of `w`.
Weight row_range(const Weight& w, std::int64_t first, std::int64_t count);

// The scales of a row.
const std::byte* scale_row(const Weight& w, std::int64_t row);

}  // namespace reckoner
