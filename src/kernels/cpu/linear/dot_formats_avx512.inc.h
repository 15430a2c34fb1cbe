// How AVX-512 decodes each format to float. A format gives:
//   Element, Vector, load(), store()   of packed x and of the panel; kVector elements in a Vector
//   kStep                              columns that are decoded together, into kVectors vectors
//   kBlockRows                         rows that share their block scales
//   kScaleVectors                      1 where the panel holds scales too: a vector of floats a step, by which its products are multiplied
//   kFewTokens                         up to which decoding in registers, for a few of them at a time, is faster (measured)
//   Scales scales(row, col, cols)      block scales of the kGroupSteps steps from column `col` on; those from `cols` on are not read
//   Decoded decode(row, col, s, j)     step j of that group, which starts at `col`
//   Decoded decode_first(..., n)       the same where only n columns are left; the others are 0
//   multiply_add(...)                  a decoded step times packed x, or one vector of it, added to a sum
//   pack_step(x, packed)               kStep elements of x in the lane order of Decoded
#pragma once

#include "kernels/cpu/linear/dot.h"
#include "kernels/cpu/simd.h"

namespace reckoner::RECKONER_ISA {
namespace {

// Formats whose packed x is float.
template <int kVectorsOfStep>
struct FloatX {
  using Element = float;
  using Vector = __m512;
  static constexpr int kVectors = kVectorsOfStep;
  static constexpr std::int64_t kVector = 16;
  static constexpr std::int64_t kStep = kVectors * kVector;
  static constexpr std::int64_t kBlockRows = 1;
  static constexpr int kScaleVectors = 0;
  struct Decoded {
    __m512 v[kVectors];
  };

  RECKONER_INLINE static Vector load(const Element* p) { return _mm512_load_ps(p); }
  RECKONER_INLINE static void store(Element* p, Vector v) { _mm512_store_ps(p, v); }
  RECKONER_INLINE static __m512 multiply_add(Vector x, Vector w, __m512 sum) { return _mm512_fmadd_ps(x, w, sum); }
  RECKONER_INLINE static __m512 multiply_add(const Element* x, const Decoded& w, __m512 sum) {
    unroll<kVectors>([&](auto i) RECKONER_INLINE_BODY { sum = _mm512_fmadd_ps(load(x + i * kVector), w.v[i], sum); });
    return sum;
  }
};

// Without block scales.
struct PlainFloatX : FloatX<2> {
  static constexpr std::int64_t kFewTokens = 16;
  struct Scales {};
  static constexpr int kGroupSteps = 4;
  RECKONER_INLINE static Scales scales(const WeightRow&, std::int64_t, std::int64_t) { return {}; }
};

// Masks of the first n elements; n may be negative or too large.
RECKONER_INLINE __mmask16 first16(std::int64_t n) {
  return static_cast<__mmask16>(n <= 0 ? 0u : n >= 16 ? 0xffffu : (1u << static_cast<unsigned>(n)) - 1u);
}
RECKONER_INLINE __mmask32 first32(std::int64_t n) {
  return static_cast<__mmask32>(n <= 0 ? 0u : n >= 32 ? 0xffffffffu : (1u << static_cast<unsigned>(n)) - 1u);
}
RECKONER_INLINE __mmask64 first64(std::int64_t n) {
  return static_cast<__mmask64>(n <= 0 ? 0u : n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << static_cast<unsigned>(n)) - 1u);
}

// Lane order: as in memory.
struct NaturalFloatX : PlainFloatX {
  RECKONER_INLINE static void pack_step(const float* x, float* packed) {
    store(packed, _mm512_loadu_ps(x));
    store(packed + kVector, _mm512_loadu_ps(x + kVector));
  }
};

struct F32Format : NaturalFloatX {
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return 4 * count; }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, Scales, int) {
    const std::byte* p = row.data + 4 * col;
    return {_mm512_loadu_ps(p), _mm512_loadu_ps(p + 64)};
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, Scales, int, std::int64_t n) {
    const std::byte* p = row.data + 4 * col;
    return {_mm512_maskz_loadu_ps(first16(n), p), _mm512_maskz_loadu_ps(first16(n - 16), p + 64)};
  }
};

struct F16Format : NaturalFloatX {
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return 2 * count; }
  RECKONER_INLINE static Decoded widen(__m512i halves) {
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(halves)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))};
  }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, Scales, int) {
    return widen(_mm512_loadu_si512(row.data + 2 * col));
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, Scales, int, std::int64_t n) {
    return widen(_mm512_maskz_loadu_epi16(first32(n), row.data + 2 * col));
  }
};

// Lane order: the even columns of a step, then the odd ones: two BF16 in a dword come apart that way.
struct Bf16Format : PlainFloatX {
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return 2 * count; }
  RECKONER_INLINE static Decoded split(__m512i pairs) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, Scales, int) {
    return split(_mm512_loadu_si512(row.data + 2 * col));
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, Scales, int, std::int64_t n) {
    return split(_mm512_maskz_loadu_epi16(first32(n), row.data + 2 * col));
  }
  RECKONER_INLINE static void pack_step(const float* x, float* packed) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512 low = _mm512_loadu_ps(x);
    const __m512 high = _mm512_loadu_ps(x + 16);
    store(packed, _mm512_permutex2var_ps(low, even, high));
    store(packed + 16, _mm512_permutex2var_ps(low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), high));
  }
};

// E8M0 -> float: the byte is a float's exponent, but that 2^-127 is denormal and 255 is NaN.
RECKONER_INLINE __m512 e8m0_to_float(__m128i bytes) {
  const __m512i bits = _mm512_cvtepu8_epi32(bytes);
  const __mmask16 special = _mm512_testn_epi32_mask(bits, bits) | _mm512_cmpeq_epi32_mask(bits, _mm512_set1_epi32(255));
  const __m512i exponents = _mm512_slli_epi32(bits, 23);
  return _mm512_castsi512_ps(_mm512_mask_or_epi32(exponents, special, exponents, _mm512_set1_epi32(0x00400000)));
}

// Sixteen bytes from p on, those from n on 0.
RECKONER_INLINE __m128i load_first_bytes(const std::byte* p, std::int64_t n) {
  return n >= 16 ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)) : _mm_maskz_loadu_epi8(first16(n), p);
}

// Lane order: column kVectors * i + m of a step is lane i of vector m.
template <int kVectors>
RECKONER_INLINE void pack_interleaved(const float* x, float* packed) {
  for (int m = 0; m < kVectors; ++m) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i columns = _mm512_mullo_epi32(lane, _mm512_set1_epi32(kVectors));
    _mm512_store_ps(packed + m * 16, _mm512_i32gather_ps(columns, x + m, 4));
  }
}

// The block scales of a group of steps. A step is sixteen dwords of codes; kDwords of them share a scale.
template <int kDwords>
struct BlockScales {
  __m512 v;

  // The scale of each dword's block, in step j.
  RECKONER_INLINE __m512 of_step(int j) const {
    constexpr int d = kDwords;
    const __m512i block = _mm512_setr_epi32(0 / d, 1 / d, 2 / d, 3 / d, 4 / d, 5 / d, 6 / d, 7 / d, 8 / d, 9 / d, 10 / d, 11 / d, 12 / d,
                                            13 / d, 14 / d, 15 / d);
    return _mm512_permutexvar_ps(_mm512_add_epi32(block, _mm512_set1_epi32(16 / d * j)), v);
  }
};

// ---- Four bits: 128 columns are 64 bytes, one vector; a dword of it is eight codes, columns 8i to 8i + 7 ----

struct Nvfp4Scales : BlockScales<2> {
  RECKONER_INLINE static Nvfp4Scales load(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    return {e4m3_to_float(load_first_bytes(row.scales + col / 16, (cols - col) / 16))};
  }
};
struct Mxfp4Scales : BlockScales<4> {
  RECKONER_INLINE static Mxfp4Scales load(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    return {e8m0_to_float(load_first_bytes(row.scales + col / 32, (cols - col) / 32))};
  }
};
struct Int4Scales : BlockScales<4> {
  RECKONER_INLINE static Int4Scales load(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    const __m128i eight = load_first_bytes(row.scales + col / 32 * 2, (cols - col) / 32 * 2);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_zextsi128_si256(eight)), 16))};
  }
};

struct E2M1Codes {
  RECKONER_INLINE static __m512 values() {
    return _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  }
};
struct Int4Codes {
  RECKONER_INLINE static __m512 values() {
    return _mm512_setr_ps(-8.0f, -7.0f, -6.0f, -5.0f, -4.0f, -3.0f, -2.0f, -1.0f, 0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f);
  }
};

RECKONER_INLINE __m512i four_bit_codes(const WeightRow& row, std::int64_t col) { return _mm512_loadu_si512(row.data + col / 2); }
RECKONER_INLINE __m512i four_bit_codes_first(const WeightRow& row, std::int64_t col, std::int64_t n) {
  return _mm512_maskz_loadu_epi8(first64(n / 2), row.data + col / 2);
}

// Columns that are missing have the code 0, which need not mean 0: their scale is 0 then.
template <class Codes, class ScalesOfFormat>
struct FourBitFormat : FloatX<8> {
  static constexpr std::int64_t kFewTokens = 12;
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return count / 2; }
  using Scales = ScalesOfFormat;
  static constexpr int kGroupSteps = 2;

  RECKONER_INLINE static Scales scales(const WeightRow& row, std::int64_t col, std::int64_t cols) { return Scales::load(row, col, cols); }
  RECKONER_INLINE static Decoded decode_codes(__m512i codes, __m512 scale) {
    const __m512 values = Codes::values();
    Decoded decoded;
    // The look-up reads the low four bits of a dword only. The products are exact: at most 4 bits times 8 bits.
    unroll<kVectors>([&](auto m) RECKONER_INLINE_BODY {
      decoded.v[m] = _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4 * m.value), values), scale);
    });
    return decoded;
  }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, const Scales& s, int j) {
    return decode_codes(four_bit_codes(row, col), s.of_step(j));
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, const Scales& s, int j, std::int64_t n) {
    return decode_codes(four_bit_codes_first(row, col, n), s.of_step(j));
  }
  static void pack_step(const float* x, float* packed) { pack_interleaved<kVectors>(x, packed); }
};

using Nvfp4Format = FourBitFormat<E2M1Codes, Nvfp4Scales>;
using Mxfp4Format = FourBitFormat<E2M1Codes, Mxfp4Scales>;
using Int4Format = FourBitFormat<Int4Codes, Int4Scales>;

// ---- FP8: 64 columns are one vector; a dword of it is columns 4i to 4i + 3 ----

struct Fp8BlockScales {
  static constexpr std::int64_t kBlockRows = kDotBlockSide;
  static constexpr int kGroupSteps = kDotBlockSide / 64;
  __m512 v;
  RECKONER_INLINE static Fp8BlockScales load(const WeightRow& row, std::int64_t col, std::int64_t) {
    return {_mm512_set1_ps(float_at(row.scales, col / kDotBlockSide))};
  }
  RECKONER_INLINE __m512 of_step(int) const { return v; }
};
struct Fp8ChannelScales {
  static constexpr std::int64_t kBlockRows = 1;
  static constexpr int kGroupSteps = 2;
  __m512 v;
  RECKONER_INLINE static Fp8ChannelScales load(const WeightRow& row, std::int64_t, std::int64_t) {
    return {_mm512_set1_ps(float_at(row.scales, 0))};
  }
  RECKONER_INLINE __m512 of_step(int) const { return v; }
};
struct Mxfp8Scales : BlockScales<8> {
  static constexpr std::int64_t kBlockRows = 1;
  static constexpr int kGroupSteps = 4;
  RECKONER_INLINE static Mxfp8Scales load(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    return {e8m0_to_float(load_first_bytes(row.scales + col / 32, (cols - col) / 32))};
  }
};

template <class ScalesOfFormat>
struct Fp8Format : FloatX<4> {
  static constexpr std::int64_t kFewTokens = 12;
  static constexpr std::int64_t kBlockRows = ScalesOfFormat::kBlockRows;
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return count; }
  using Scales = ScalesOfFormat;
  static constexpr int kGroupSteps = Scales::kGroupSteps;

  RECKONER_INLINE static Scales scales(const WeightRow& row, std::int64_t col, std::int64_t cols) { return Scales::load(row, col, cols); }
  // As e4m3_to_float. NaN is looked for in all lanes at once: it makes the row's sum NaN wherever it stands.
  RECKONER_INLINE static Decoded decode_codes(__m512i codes, __m512 scale) {
    const __m512i magnitude = _mm512_set1_epi8(0x7f);
    if (_mm512_cmpeq_epi8_mask(_mm512_and_si512(codes, magnitude), magnitude) != 0) [[unlikely]] {
      scale = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    }
    Decoded decoded;
    unroll<kVectors>([&](auto m) RECKONER_INLINE_BODY {
      const __m512i highest = _mm512_slli_epi32(codes, 24 - 8 * m.value);
      const __m512i bits = _mm512_and_si512(_mm512_srai_epi32(highest, 4), _mm512_set1_epi32(static_cast<int>(0x87f00000u)));
      decoded.v[m] = _mm512_mul_ps(_mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f)), scale);
    });
    return decoded;
  }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, const Scales& s, int j) {
    return decode_codes(_mm512_loadu_si512(row.data + col), s.of_step(j));
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, const Scales& s, int j, std::int64_t n) {
    return decode_codes(_mm512_maskz_loadu_epi8(first64(n), row.data + col), s.of_step(j));
  }
  static void pack_step(const float* x, float* packed) { pack_interleaved<kVectors>(x, packed); }
};

using Fp8BlockFormat = Fp8Format<Fp8BlockScales>;
using Fp8ChannelFormat = Fp8Format<Fp8ChannelScales>;
using Mxfp8Format = Fp8Format<Mxfp8Scales>;

// Sums of the lanes of four vectors, side by side; each by the same tree.
RECKONER_INLINE __m128 sum_lanes(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512 abcd = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
  const __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
  return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

}  // namespace
}  // namespace reckoner::RECKONER_ISA
