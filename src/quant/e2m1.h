// E2M1, the four-bit float of NVFP4 and MXFP4: sign in bit 3, then 0, 0.5, 1, 1.5, 2, 3, 4, 6. Two codes a byte: element 2b of a row is the
// low nibble of byte b, 2b + 1 the high one.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace reckoner {

inline constexpr float kE2M1[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// The code nearest to a value; ties to the even code; beyond 6 it is 6.
inline unsigned nearest_e2m1(float value) {
  const float magnitude = std::fabs(value);
  unsigned best = 0;
  for (unsigned code = 1; code < 8; ++code) {
    const float distance = std::fabs(magnitude - kE2M1[code]);
    const float best_distance = std::fabs(magnitude - kE2M1[best]);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(value) ? 8u : 0u);
}

inline unsigned nibble(const std::byte* row, std::int64_t col) {
  const auto pair = static_cast<unsigned>(row[col / 2]);
  return col % 2 == 0 ? pair & 15 : pair >> 4;
}
inline void set_nibble(std::byte* row, std::int64_t col, unsigned code) {
  row[col / 2] |= static_cast<std::byte>(col % 2 == 0 ? code : code << 4);
}

}  // namespace reckoner
