// FP8 with scales in float. Element = e4m3(code) * scale.
//   data    `weight` F8_E4M3 [rows, cols]
//   fp8_block    scales F32 [ceil(rows/128), ceil(cols/128)]: `weight_scale_inv` (DeepSeek, GLM; it multiplies despite its name) or
//                `weight_scale` (compressed-tensors, strategy block)
//   fp8_channel  scales F32 [rows], one a row: `weight_scale` [rows, 1] or [rows]; a `weight_scale` of one element counts for every row
// Scales that are published in another dtype (BF16, F16, E8M0) are converted when the weight is resolved.
#pragma once

#include "quant/format.h"

namespace reckoner {

inline constexpr std::int64_t kFp8Block = 128;

// Both pack with scale = largest magnitude / 448, 1 where all are zero.
extern const FormatInfo kFp8BlockFormat;
extern const FormatInfo kFp8ChannelFormat;

}  // namespace reckoner
