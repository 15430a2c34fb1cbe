// How AVX2 decodes each format to float (see dot_formats_avx512.inc.h for what a format is).
#pragma once

#include <cstring>

#include "kernels/cpu/linear/dot.h"
#include "kernels/cpu/simd.h"

namespace reckoner::RECKONER_ISA {
namespace {

// Formats whose packed x is float.
template <int kVectorsOfStep>
struct FloatX {
  using Element = float;
  using Vector = __m256;
  static constexpr int kVectors = kVectorsOfStep;
  static constexpr std::int64_t kVector = 8;
  static constexpr std::int64_t kStep = kVectors * kVector;
  struct Decoded {
    __m256 v[kVectors];
  };

  RECKONER_INLINE static Vector load(const Element* p) { return _mm256_load_ps(p); }
  RECKONER_INLINE static void store(Element* p, Vector v) { _mm256_store_ps(p, v); }
  RECKONER_INLINE static __m256 multiply_add(Vector x, Vector w, __m256 sum) { return _mm256_fmadd_ps(x, w, sum); }
  RECKONER_INLINE static __m256 multiply_add(const Element* x, const Decoded& w, __m256 sum) {
    unroll<kVectors>([&](auto i) RECKONER_INLINE_BODY { sum = _mm256_fmadd_ps(load(x + i * kVector), w.v[i], sum); });
    return sum;
  }
};

// Without block scales. `Format` gives widen(p) for a step at p, and bytes(count), of so many columns.
template <class Format>
struct PlainFloatX : FloatX<2> {
  static constexpr std::int64_t kFewTokens = 16;
  struct Scales {};
  static constexpr int kGroupSteps = 4;
  RECKONER_INLINE static Scales scales(const WeightRow&, std::int64_t, std::int64_t) { return {}; }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, Scales, int) {
    return Format::widen(row.data + Format::bytes(col));
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, Scales, int, std::int64_t n) {
    alignas(32) std::byte step[Format::bytes(kStep)] = {};
    std::memcpy(step, row.data + Format::bytes(col), static_cast<std::size_t>(Format::bytes(n)));
    return Format::widen(step);
  }
};

RECKONER_INLINE __m256i load_bytes(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// Lane order: as in memory.
RECKONER_INLINE void pack_natural(const float* x, float* packed) {
  _mm256_store_ps(packed, _mm256_loadu_ps(x));
  _mm256_store_ps(packed + 8, _mm256_loadu_ps(x + 8));
}

// Lane order: the even ones of 16 columns, then the odd ones. Two BF16 in a dword, or two codes in a byte, come apart that way.
RECKONER_INLINE void pack_even_odd(const float* x, float* packed) {
  const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(x), even);
  const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(x + 8), even);
  _mm256_store_ps(packed, _mm256_permute2f128_ps(low, high, 0x20));
  _mm256_store_ps(packed + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

struct F32Format : PlainFloatX<F32Format> {
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return 4 * count; }
  RECKONER_INLINE static Decoded widen(const std::byte* p) {
    return {_mm256_castsi256_ps(load_bytes(p)), _mm256_castsi256_ps(load_bytes(p + 32))};
  }
  RECKONER_INLINE static void pack_step(const float* x, float* packed) { pack_natural(x, packed); }
};

struct F16Format : PlainFloatX<F16Format> {
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return 2 * count; }
  RECKONER_INLINE static Decoded widen(const std::byte* p) {
    const __m256i halves = load_bytes(p);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
  }
  RECKONER_INLINE static void pack_step(const float* x, float* packed) { pack_natural(x, packed); }
};

struct Bf16Format : PlainFloatX<Bf16Format> {
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return 2 * count; }
  RECKONER_INLINE static Decoded widen(const std::byte* p) {
    const __m256i pairs = load_bytes(p);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  RECKONER_INLINE static void pack_step(const float* x, float* packed) { pack_even_odd(x, packed); }
};

// E4M3 -> float: as on AVX-512.
RECKONER_INLINE __m256 e4m3_to_float(__m128i bytes) {
  const __m256i bits = _mm256_cvtepi8_epi32(bytes);
  const __m256i shifted = _mm256_and_si256(_mm256_slli_epi32(bits, 20), _mm256_set1_epi32(static_cast<int>(0x87f00000u)));
  const __m256 value = _mm256_mul_ps(_mm256_castsi256_ps(shifted), _mm256_set1_ps(0x1p120f));
  const __m256i nan = _mm256_cmpeq_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7f)), _mm256_set1_epi32(0x7f));
  return _mm256_or_ps(value, _mm256_castsi256_ps(nan));
}

// A step is four blocks, 32 bytes; vectors 2b and 2b + 1 hold the even and odd columns of block b.
struct Nvfp4Format : FloatX<8> {
  static constexpr std::int64_t kFewTokens = 4;
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return count / 2; }
  static constexpr int kGroupSteps = 2;
  struct Scales {
    alignas(32) float of_half[8];  // half the scale of each block
  };

  RECKONER_INLINE static Scales scales(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    std::int64_t bytes = 0;
    if (cols - col >= 128) {
      std::memcpy(&bytes, row.scales + col / 16, 8);
    } else {
      std::memcpy(&bytes, row.scales + col / 16, static_cast<std::size_t>((cols - col) / 16));
    }
    Scales s;
    _mm256_store_ps(s.of_half, _mm256_mul_ps(e4m3_to_float(_mm_cvtsi64_si128(bytes)), _mm256_set1_ps(0.5f)));
    return s;
  }
  // Looks up twice the value as a signed byte: that is an integer. The products are exact: 2 bits times 4 bits.
  RECKONER_INLINE static Decoded decode_codes(__m256i codes, const Scales& s, int j) {
    const __m256i doubled = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    const __m256i low_bits = _mm256_set1_epi8(15);
    const __m256i even = _mm256_shuffle_epi8(doubled, _mm256_and_si256(codes, low_bits));
    const __m256i odd = _mm256_shuffle_epi8(doubled, _mm256_and_si256(_mm256_srli_epi16(codes, 4), low_bits));
    Decoded decoded;
    unroll<4>([&](auto b) RECKONER_INLINE_BODY {
      const __m256 scale = _mm256_broadcast_ss(s.of_half + 4 * j + b);
      decoded.v[2 * b] = _mm256_mul_ps(eight_bytes<b>(even), scale);
      decoded.v[2 * b + 1] = _mm256_mul_ps(eight_bytes<b>(odd), scale);
    });
    return decoded;
  }
  template <int kEighth>
  RECKONER_INLINE static __m256 eight_bytes(__m256i bytes) {
    const __m128i half = _mm256_extracti128_si256(bytes, kEighth / 2);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(kEighth % 2 == 0 ? half : _mm_unpackhi_epi64(half, half)));
  }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, const Scales& s, int j) {
    return decode_codes(load_bytes(row.data + col / 2), s, j);
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, const Scales& s, int j, std::int64_t n) {
    alignas(32) std::byte codes[32] = {};
    std::memcpy(codes, row.data + col / 2, static_cast<std::size_t>(n / 2));
    return decode_codes(load_bytes(codes), s, j);
  }
  RECKONER_INLINE static void pack_step(const float* x, float* packed) {
    for (std::int64_t col = 0; col < kStep; col += 16) pack_even_odd(x + col, packed + col);
  }
};

// Sums of the lanes of four vectors, side by side; each by the same tree.
RECKONER_INLINE __m128 sum_lanes(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
  const __m256d low = _mm256_unpacklo_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd));
  const __m256d high = _mm256_unpackhi_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd));
  const __m256 abcd = _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high));
  return _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
}

}  // namespace
}  // namespace reckoner::RECKONER_ISA
