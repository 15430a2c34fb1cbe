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
  static constexpr std::int64_t kBlockRows = 1;
  static constexpr int kScaleVectors = 0;
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

// E8M0 -> float: the byte is a float's exponent, but that 2^-127 is denormal and 255 is NaN.
RECKONER_INLINE __m128 e8m0_to_float(__m128i bytes) {
  const __m128i bits = _mm_cvtepu8_epi32(bytes);
  const __m128i special = _mm_or_si128(_mm_cmpeq_epi32(bits, _mm_setzero_si128()), _mm_cmpeq_epi32(bits, _mm_set1_epi32(255)));
  return _mm_castsi128_ps(_mm_or_si128(_mm_slli_epi32(bits, 23), _mm_and_si128(special, _mm_set1_epi32(0x00400000))));
}

// Eight bytes from p on, those from n on 0.
RECKONER_INLINE __m128i load_first_bytes(const std::byte* p, std::int64_t n) {
  std::int64_t bytes = 0;
  if (n >= 8) {
    std::memcpy(&bytes, p, 8);
  } else {
    std::memcpy(&bytes, p, static_cast<std::size_t>(n));
  }
  return _mm_cvtsi64_si128(bytes);
}

// ---- Four bits: a step is 32 bytes, 64 columns; vectors 2b and 2b + 1 hold the even and odd ones of 16 columns ----

// Formats give what to multiply each 16 of 128 columns by, and the sixteen codes' values as signed bytes.
struct FourBitScales {
  alignas(32) float of_16[8];

  RECKONER_INLINE void store_pairs(__m128 four) {  // of 32 columns each
    _mm_store_ps(of_16, _mm_unpacklo_ps(four, four));
    _mm_store_ps(of_16 + 4, _mm_unpackhi_ps(four, four));
  }
};
// Twice the values of E2M1, which are integers, by half the scale.
struct E2M1Codes {
  RECKONER_INLINE static __m128i values() { return _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12); }
};
struct Nvfp4Scales : FourBitScales, E2M1Codes {
  RECKONER_INLINE void load(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    const __m128i bytes = load_first_bytes(row.scales + col / 16, (cols - col) / 16);
    _mm256_store_ps(of_16, _mm256_mul_ps(e4m3_to_float(bytes), _mm256_set1_ps(0.5f)));
  }
};
struct Mxfp4Scales : FourBitScales, E2M1Codes {
  RECKONER_INLINE void load(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    const __m128i bytes = load_first_bytes(row.scales + col / 32, (cols - col) / 32);
    store_pairs(_mm_mul_ps(e8m0_to_float(bytes), _mm_set1_ps(0.5f)));
  }
};
struct Int4Scales : FourBitScales {
  RECKONER_INLINE static __m128i values() { return _mm_setr_epi8(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7); }
  RECKONER_INLINE void load(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    const __m128i halves = load_first_bytes(row.scales + col / 32 * 2, (cols - col) / 32 * 2);
    store_pairs(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16)));
  }
};

// Columns that are missing have the code 0, which need not mean 0: their scale is 0 then.
template <class ScalesOfFormat>
struct FourBitFormat : FloatX<8> {
  static constexpr std::int64_t kFewTokens = 4;
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return count / 2; }
  using Scales = ScalesOfFormat;
  static constexpr int kGroupSteps = 2;

  RECKONER_INLINE static Scales scales(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    Scales s;
    s.load(row, col, cols);
    return s;
  }
  // The products are exact: at most 4 bits times 8 bits.
  RECKONER_INLINE static Decoded decode_codes(__m256i codes, const Scales& s, int j) {
    const __m256i values = _mm256_broadcastsi128_si256(Scales::values());
    const __m256i low_bits = _mm256_set1_epi8(15);
    const __m256i even = _mm256_shuffle_epi8(values, _mm256_and_si256(codes, low_bits));
    const __m256i odd = _mm256_shuffle_epi8(values, _mm256_and_si256(_mm256_srli_epi16(codes, 4), low_bits));
    Decoded decoded;
    unroll<4>([&](auto b) RECKONER_INLINE_BODY {
      const __m256 scale = _mm256_broadcast_ss(s.of_16 + 4 * j + b);
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

using Nvfp4Format = FourBitFormat<Nvfp4Scales>;
using Mxfp4Format = FourBitFormat<Mxfp4Scales>;
using Int4Format = FourBitFormat<Int4Scales>;

// ---- FP8: a step is 32 columns; a dword of it is columns 4i to 4i + 3 ----

struct Fp8BlockScales {
  static constexpr std::int64_t kBlockRows = kDotBlockSide;
  static constexpr int kGroupSteps = kDotBlockSide / 32;
  __m256 v;
  RECKONER_INLINE void load(const WeightRow& row, std::int64_t col, std::int64_t) {
    v = _mm256_set1_ps(float_at(row.scales, col / kDotBlockSide));
  }
  RECKONER_INLINE __m256 of_step(int) const { return v; }
};
struct Fp8ChannelScales {
  static constexpr std::int64_t kBlockRows = 1;
  static constexpr int kGroupSteps = 4;
  __m256 v;
  RECKONER_INLINE void load(const WeightRow& row, std::int64_t, std::int64_t) { v = _mm256_set1_ps(float_at(row.scales, 0)); }
  RECKONER_INLINE __m256 of_step(int) const { return v; }
};
struct Mxfp8Scales {
  static constexpr std::int64_t kBlockRows = 1;
  static constexpr int kGroupSteps = 4;
  alignas(16) float v[4];
  RECKONER_INLINE void load(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    _mm_store_ps(v, e8m0_to_float(load_first_bytes(row.scales + col / 32, (cols - col) / 32)));
  }
  RECKONER_INLINE __m256 of_step(int j) const { return _mm256_broadcast_ss(v + j); }
};

template <class ScalesOfFormat>
struct Fp8Format : FloatX<4> {
  static constexpr std::int64_t kFewTokens = 4;
  static constexpr std::int64_t kBlockRows = ScalesOfFormat::kBlockRows;
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return count; }
  using Scales = ScalesOfFormat;
  static constexpr int kGroupSteps = Scales::kGroupSteps;

  RECKONER_INLINE static Scales scales(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    Scales s;
    s.load(row, col, cols);
    return s;
  }
  // As e4m3_to_float. NaN is looked for in all lanes at once: it makes the row's sum NaN wherever it stands.
  RECKONER_INLINE static Decoded decode_codes(__m256i codes, __m256 scale) {
    const __m256i magnitude = _mm256_set1_epi8(0x7f);
    const __m256i nan = _mm256_cmpeq_epi8(_mm256_and_si256(codes, magnitude), magnitude);
    if (_mm256_testz_si256(nan, nan) == 0) [[unlikely]]
      scale = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    Decoded decoded;
    unroll<kVectors>([&](auto m) RECKONER_INLINE_BODY {
      const __m256i highest = _mm256_slli_epi32(codes, 24 - 8 * m.value);
      const __m256i bits = _mm256_and_si256(_mm256_srai_epi32(highest, 4), _mm256_set1_epi32(static_cast<int>(0x87f00000u)));
      decoded.v[m] = _mm256_mul_ps(_mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f)), scale);
    });
    return decoded;
  }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, const Scales& s, int j) {
    return decode_codes(load_bytes(row.data + col), s.of_step(j));
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, const Scales& s, int j, std::int64_t n) {
    alignas(32) std::byte codes[32] = {};
    std::memcpy(codes, row.data + col, static_cast<std::size_t>(n));
    return decode_codes(load_bytes(codes), s.of_step(j));
  }
  // Lane order: column 4i + m of a step is lane i of vector m.
  RECKONER_INLINE static void pack_step(const float* x, float* packed) {
    const __m256i every_fourth = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    for (int m = 0; m < kVectors; ++m) _mm256_store_ps(packed + m * kVector, _mm256_i32gather_ps(x + m, every_fourth, 4));
  }
};

using Fp8BlockFormat = Fp8Format<Fp8BlockScales>;
using Fp8ChannelFormat = Fp8Format<Fp8ChannelScales>;
using Mxfp8Format = Fp8Format<Mxfp8Scales>;

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
