// How AVX-512 decodes each format to float. A format gives:
//   Element, Vector, load(), store()   of packed x and of the panel; kVector elements in a Vector
//   kStep                              columns that are decoded together, into kVectors vectors
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

// E4M3 -> float. Shifted by 20 bits, exponent and mantissa lie where a float has them; the product moves the bias, denormals included.
RECKONER_INLINE __m512 e4m3_to_float(__m128i bytes) {
  const __m512i bits = _mm512_cvtepi8_epi32(bytes);
  const __m512i shifted = _mm512_and_si512(_mm512_slli_epi32(bits, 20), _mm512_set1_epi32(static_cast<int>(0x87f00000u)));
  const __m512 value = _mm512_mul_ps(_mm512_castsi512_ps(shifted), _mm512_set1_ps(0x1p120f));
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(_mm512_and_si512(bits, _mm512_set1_epi32(0x7f)), _mm512_set1_epi32(0x7f));
  return _mm512_mask_mov_ps(value, nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}

// NVFP4: 128 columns are 64 bytes, one vector; a dword of it is eight codes, columns 8i to 8i + 7, half a block.
inline constexpr std::int64_t kNvfp4Step = 128;

struct Nvfp4Scales {
  __m512 v;  // of 16 blocks: two steps

  RECKONER_INLINE static Nvfp4Scales load(const WeightRow& row, std::int64_t col, std::int64_t cols) {
    const std::byte* p = row.scales + col / 16;
    if (cols - col >= 256) return {e4m3_to_float(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
    return {e4m3_to_float(_mm_maskz_loadu_epi8(first16((cols - col) / 16), p))};
  }
  // The scale of each dword's block, in step j.
  RECKONER_INLINE __m512 of_step(int j) const {
    const __m512i block = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(_mm512_add_epi32(block, _mm512_set1_epi32(8 * j)), v);
  }
};
RECKONER_INLINE __m512i nvfp4_codes(const WeightRow& row, std::int64_t col) { return _mm512_loadu_si512(row.data + col / 2); }
RECKONER_INLINE __m512i nvfp4_codes_first(const WeightRow& row, std::int64_t col, std::int64_t n) {
  return _mm512_maskz_loadu_epi8(first64(n / 2), row.data + col / 2);
}

// Lane order: column 8i + m of a step is lane i of vector m.
struct Nvfp4Format : FloatX<8> {
  static constexpr std::int64_t kFewTokens = 12;
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return count / 2; }
  using Scales = Nvfp4Scales;
  static constexpr int kGroupSteps = 2;

  RECKONER_INLINE static Scales scales(const WeightRow& row, std::int64_t col, std::int64_t cols) { return Scales::load(row, col, cols); }
  RECKONER_INLINE static Decoded decode_codes(__m512i codes, __m512 scale) {
    const __m512 values =
        _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    Decoded decoded;
    // The look-up reads the low four bits of a dword only. The products are exact: 2 bits times 4 bits.
    unroll<kVectors>([&](auto m) RECKONER_INLINE_BODY {
      decoded.v[m] = _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4 * m.value), values), scale);
    });
    return decoded;
  }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, const Scales& s, int j) {
    return decode_codes(nvfp4_codes(row, col), s.of_step(j));
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, const Scales& s, int j, std::int64_t n) {
    return decode_codes(nvfp4_codes_first(row, col, n), s.of_step(j));
  }
  static void pack_step(const float* x, float* packed) {
    for (int m = 0; m < kVectors; ++m) {
      const __m512i every_eighth = _mm512_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120);
      store(packed + m * kVector, _mm512_i32gather_ps(every_eighth, x + m, 4));
    }
  }
};

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
