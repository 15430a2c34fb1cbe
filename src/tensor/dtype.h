// DType: element types, with safetensors' names; and the scalar conversions between them and float.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace reckoner {

enum class DType : std::uint8_t { f32, f16, bf16, f64, f8_e4m3, f8_e5m2, f8_e8m0, i8, u8, i16, u16, i32, u32, i64, u64, boolean };

// Bytes of one element.
std::int64_t size_bytes(DType dtype);

// The safetensors spelling: "F32", "BF16", "F8_E4M3", ...
std::string_view name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

// bfloat16 bits <-> float. Rounds to nearest, ties to even; a NaN stays a NaN.
inline float bf16_to_f32(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
inline std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE half bits <-> float. Rounds to nearest, ties to even; beyond the largest half (65504) it is infinity; a NaN stays a NaN.
float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);

// OCP FP8 E4M3 ("fn": no infinities, 0x7F and 0xFF are NaN, largest 448) -> float, exact.
float e4m3_to_f32(std::uint8_t bits);
// Nearest E4M3, ties to even, saturating at 448; NaN -> 0x7F.
std::uint8_t f32_to_e4m3(float value);

// OCP E8M0: 2^(bits - 127); 255 is NaN.
inline float e8m0_to_f32(std::uint8_t bits) {
  if (bits == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : static_cast<std::uint32_t>(bits) << 23);
}
// The smallest power of two that is not below `value` > 0, within E8M0's range.
std::uint8_t f32_to_e8m0_up(float value);

}  // namespace reckoner
