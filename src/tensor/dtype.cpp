#include "tensor/dtype.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace reckoner {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::int64_t size_bytes;
};

constexpr std::array kDTypes = {
    DTypeInfo{DType::f32, "F32", 4},         DTypeInfo{DType::f16, "F16", 2},         DTypeInfo{DType::bf16, "BF16", 2},
    DTypeInfo{DType::f64, "F64", 8},         DTypeInfo{DType::f8_e4m3, "F8_E4M3", 1}, DTypeInfo{DType::f8_e5m2, "F8_E5M2", 1},
    DTypeInfo{DType::f8_e8m0, "F8_E8M0", 1}, DTypeInfo{DType::i8, "I8", 1},           DTypeInfo{DType::u8, "U8", 1},
    DTypeInfo{DType::i16, "I16", 2},         DTypeInfo{DType::u16, "U16", 2},         DTypeInfo{DType::i32, "I32", 4},
    DTypeInfo{DType::u32, "U32", 4},         DTypeInfo{DType::i64, "I64", 8},         DTypeInfo{DType::u64, "U64", 8},
    DTypeInfo{DType::boolean, "BOOL", 1},
};

const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::int64_t size_bytes(DType dtype) { return info(dtype).size_bytes; }

std::string_view name(DType dtype) { return info(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& entry : kDTypes) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

float f16_to_f32(std::uint16_t bits) {
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  if (exponent == 0x1f) { return mantissa == 0 ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN(); }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(0x400 | mantissa), exponent - 25);
}

std::uint16_t f32_to_f16(float value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return sign | 0x7c00;  // half way between 65504 and what would be the next
  // The step between neighbours is 2^(e-10) in the binade of e, and 2^-24 below the smallest normal number, 2^-14.
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent-1), 2^exponent)
  const int step = magnitude < 0x1p-14f ? -24 : exponent - 11;
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -step)));  // 0..2048, ties to even
  if (step == -24) return sign | static_cast<std::uint16_t>(steps);
  return sign | static_cast<std::uint16_t>(((step + 25) << 10) + (steps - 1024));
}

std::uint8_t f32_to_e8m0_up(float value) {
  int exponent = 0;
  const float mantissa = std::frexp(value, &exponent);  // value = mantissa * 2^exponent, mantissa in [0.5, 1)
  if (mantissa == 0.5f) --exponent;
  return static_cast<std::uint8_t>(std::clamp(exponent + 127, 0, 254));
}

float e4m3_to_f32(std::uint8_t bits) {
  const auto sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
  const std::uint32_t code = bits & 0x7fu;
  if (code == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  // From 2^-6 on the exponent is only biased otherwise (127 against 7); below, a code is a count of steps of 2^-9.
  if (code >= 8) return std::bit_cast<float>(sign | ((code << 20) + (120u << 23)));
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(code) * 0x1p-9f));
}

std::uint8_t f32_to_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7f800000u) return 0x7f;
  if (magnitude >= std::bit_cast<std::uint32_t>(448.0f)) return static_cast<std::uint8_t>(sign | 0x7e);
  if (magnitude >= std::bit_cast<std::uint32_t>(0x1p-6f)) {
    // Three bits of mantissa stay: half a step is added, a little less where the code is even. A carry moves on into the exponent.
    const std::uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
    return static_cast<std::uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
  }
  // The step of floats around 2^14 is 2^-9: adding 2^14 rounds to it, ties to even, and leaves the count of steps in the last bits.
  const auto steps = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - std::bit_cast<std::uint32_t>(0x1p14f);
  return static_cast<std::uint8_t>(sign | steps);
}

}  // namespace reckoner
