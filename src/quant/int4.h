// INT4 in groups of 32 (compressed-tensors pack-quantized, symmetric). Element = (code - 8) * group scale.
//   data    codes [rows, cols/2]: `weight_packed` I32 [rows, cols/8], element i of a row in bits 4 * (i % 8) of word i/8; as bytes that is
//           element 2b in the low nibble of byte b, 2b + 1 in the high one
//   scales  BF16 [rows, cols/32]: `weight_scale`
//   `weight_shape` [2] = rows, cols
#pragma once

#include "quant/format.h"

namespace reckoner {

inline constexpr std::int64_t kInt4Group = 32;

// Packs with scale = largest magnitude of the group / 7, rounded to BF16, 1 for a group of zeros: codes -7 to 7.
extern const FormatInfo kInt4Format;

}  // namespace reckoner
