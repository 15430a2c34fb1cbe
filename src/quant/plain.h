// F32, F16 and BF16 weights: rows of plain elements.
#pragma once

#include <array>

#include "quant/format.h"

namespace reckoner {

extern const std::array<FormatInfo, 3> kPlainFormats;  // f32, f16, bf16

}  // namespace reckoner
