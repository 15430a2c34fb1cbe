// ModelOpt NVFP4: `weight` U8 [rows, cols/2], `weight_scale` F8_E4M3 [rows, cols/16], `weight_scale_2` F32 [].
// w = e2m1(nibble) * e4m3(weight_scale) * weight_scale_2. Element 2b of a row is the low nibble of byte b, 2b+1 the high one.
#pragma once

#include <vector>

#include "quant/format.h"

namespace reckoner {

inline constexpr std::int64_t kNvfp4Block = 16;

// Value of an E2M1 code: sign in bit 3, then 0, 0.5, 1, 1.5, 2, 3, 4, 6.
inline constexpr float kE2M1[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

extern const FormatInfo kNvfp4Format;

// A packed matrix that owns its bytes.
struct Nvfp4Matrix {
  std::vector<std::byte> data;    // rows x cols/2
  std::vector<std::byte> scales;  // rows x cols/16
  Weight weight;                  // refers to the two
};

// Packs `values` [rows, cols] as ModelOpt does: tensor scale = largest magnitude / (6 * 448), block scale = largest of the block / (6 *
// tensor scale) in E4M3, clamped to [2^-9, 448]; codes to nearest, ties to the even code. cols must be a multiple of 16.
Nvfp4Matrix pack_nvfp4(std::span<const float> values, std::int64_t rows, std::int64_t cols);

// The first block scale that cannot be right (NaN, negative, or zero over codes that are not), or nothing.
struct BadScale {
  std::int64_t row, block;
  std::string what;
};
std::optional<BadScale> find_bad_scale(const Weight& w, std::int64_t first_row, std::int64_t rows);

}  // namespace reckoner
