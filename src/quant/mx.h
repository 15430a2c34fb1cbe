// MXFP4 and MXFP8 (OCP Microscaling). Element = code * 2^(block scale - 127); blocks of 32 columns.
//   data    MXFP4: E2M1 codes [rows, cols/2], `weight` U8 (ModelOpt) or `weight_packed` U8 (compressed-tensors)
//           MXFP8: `weight` F8_E4M3 [rows, cols]
//   scales  E8M0 [rows, cols/32]: `weight_scale` U8 or F8_E8M0
#pragma once

#include "quant/format.h"

namespace reckoner {

inline constexpr std::int64_t kMxBlock = 32;

// Both pack with the smallest power of two that does not saturate the largest element of a block; 2^0 for a block of zeros.
extern const FormatInfo kMxfp4Format;
extern const FormatInfo kMxfp8Format;

}  // namespace reckoner
