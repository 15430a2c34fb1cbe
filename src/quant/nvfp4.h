// NVFP4. Element = e2m1(code) * e4m3(block scale) * tensor scale; blocks of 16 columns.
//   data    codes [rows, cols/2]          ModelOpt `weight` U8, compressed-tensors `weight_packed` U8
//   scales  E4M3 [rows, cols/16]          `weight_scale` of both
//   scale   ModelOpt `weight_scale_2` F32, compressed-tensors 1 / `weight_global_scale` F32
#pragma once

#include "quant/format.h"

namespace reckoner {

inline constexpr std::int64_t kNvfp4Block = 16;

// Packs as ModelOpt does: tensor scale = largest magnitude / (6 * 448), block scale = largest of the block / (6 * tensor scale) in E4M3,
// clamped to [2^-9, 448], 1 for a block of zeros; codes to nearest, ties to the even code.
extern const FormatInfo kNvfp4Format;

}  // namespace reckoner
