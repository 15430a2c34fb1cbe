// E2M1, the four-bit float of NVFP4 and MXFP4: sign in bit 3, then 0, 0.5, 1, 1.5, 2, 3, 4, 6. Two codes a byte: element 2b of a row is the
// low nibble of byte b, 2b + 1 the high one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace reckoner {

inline constexpr float kE2M1[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// The code nearest to a value; ties to the even code; beyond 6 it is 6. Counts the midpoints passed, where a tie passes the one below an
// even code.
inline unsigned nearest_e2m1(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
  const unsigned code = static_cast<unsigned>(magnitude > 0.25f) + static_cast<unsigned>(magnitude >= 0.75f) +
                        static_cast<unsigned>(magnitude > 1.25f) + static_cast<unsigned>(magnitude >= 1.75f) +
                        static_cast<unsigned>(magnitude > 2.5f) + static_cast<unsigned>(magnitude >= 3.5f) +
                        static_cast<unsigned>(magnitude > 5.0f);
  return code | (bits >> 31 << 3);
}

inline unsigned nibble(const std::byte* row, std::int64_t col) {
  const auto pair = static_cast<unsigned>(row[col / 2]);
  return col % 2 == 0 ? pair & 15 : pair >> 4;
}
inline void set_nibble(std::byte* row, std::int64_t col, unsigned code) {
  row[col / 2] |= static_cast<std::byte>(col % 2 == 0 ? code : code << 4);
}

// `kCount` codes of values / step, from the start of a byte on. The first loop has no branches and no store that the compiler could not put
// into vectors.
template <std::int64_t kCount>
void pack_e2m1(const float* values, float step, std::byte* out) {
  unsigned codes[kCount];
  for (std::int64_t i = 0; i < kCount; ++i) codes[i] = nearest_e2m1(values[i] / step);
  for (std::int64_t i = 0; i < kCount / 2; ++i) out[i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
}

}  // namespace reckoner
