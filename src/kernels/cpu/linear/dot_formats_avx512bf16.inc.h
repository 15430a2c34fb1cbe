// How AVX-512 with BF16 decodes formats for products with x in BF16 (see dot_formats_avx512.inc.h for what a format is).
// vdpbf16ps takes denormal BF16 as zero.
#pragma once

#include "kernels/cpu/linear/dot_formats_avx512.inc.h"

namespace reckoner::RECKONER_ISA {
namespace {

RECKONER_INLINE __m512 dot_pairs(__m512 sum, __m512i x, __m512i w) { return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w); }

// 32 floats to BF16, in the order of memory.
RECKONER_INLINE __m512i round_to_bf16(const float* x) { return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x)); }

template <int kVectorsOfStep>
struct Bf16X {
  using Element = std::uint16_t;
  using Vector = __m512i;
  static constexpr int kVectors = kVectorsOfStep;
  static constexpr std::int64_t kVector = 32;
  static constexpr std::int64_t kStep = kVectors * kVector;
  static constexpr std::int64_t kBlockRows = 1;
  static constexpr int kScaleVectors = 0;
  struct Decoded {
    __m512i v[kVectors];
  };

  RECKONER_INLINE static Vector load(const Element* p) { return _mm512_load_si512(p); }
  RECKONER_INLINE static void store(Element* p, Vector v) { _mm512_store_si512(p, v); }
  RECKONER_INLINE static __m512 multiply_add(Vector x, Vector w, __m512 sum) { return dot_pairs(sum, x, w); }
  RECKONER_INLINE static __m512 multiply_add(const Element* x, const Decoded& w, __m512 sum) {
    unroll<kVectors>([&](auto i) RECKONER_INLINE_BODY { sum = dot_pairs(sum, load(x + i * kVector), w.v[i]); });
    return sum;
  }
};

// Lane order: as in memory; there is nothing to decode.
struct Bf16ByBf16 : Bf16X<2> {
  static constexpr std::int64_t kFewTokens = 16;
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return 2 * count; }
  struct Scales {};
  static constexpr int kGroupSteps = 4;

  RECKONER_INLINE static Scales scales(const WeightRow&, std::int64_t, std::int64_t) { return {}; }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, Scales, int) {
    const std::byte* p = row.data + 2 * col;
    return {_mm512_loadu_si512(p), _mm512_loadu_si512(p + 64)};
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, Scales, int, std::int64_t n) {
    const std::byte* p = row.data + 2 * col;
    return {_mm512_maskz_loadu_epi16(first32(n), p), _mm512_maskz_loadu_epi16(first32(n - 32), p + 64)};
  }
  RECKONER_INLINE static void pack_step(const float* x, Element* packed) {
    store(packed, round_to_bf16(x));
    store(packed + kVector, round_to_bf16(x + kVector));
  }
};

// Formats with block scales. The codes are exact in BF16; their scales are multiplied by sums of products, in lanes that each lie within
// one block.
template <class ScalesOfFormat, int kVectorsOfStep>
struct ScaledBf16X : Bf16X<kVectorsOfStep> {
  using Base = Bf16X<kVectorsOfStep>;
  using typename Base::Element;
  static constexpr std::int64_t kFewTokens = 12;
  static constexpr int kScaleVectors = 1;
  using Scales = ScalesOfFormat;
  struct Decoded {
    __m512i v[Base::kVectors];  // without the block scale
    __m512 scale;               // of each lane of the sum
  };

  using Base::multiply_add;
  RECKONER_INLINE static __m512 multiply_add(const Element* x, const Decoded& w, __m512 sum) {
    __m512 unscaled = _mm512_setzero_ps();
    unroll<Base::kVectors>([&](auto i) RECKONER_INLINE_BODY { unscaled = dot_pairs(unscaled, Base::load(x + i * Base::kVector), w.v[i]); });
    return _mm512_fmadd_ps(unscaled, w.scale, sum);
  }
  RECKONER_INLINE static Scales scales(const WeightRow& row, std::int64_t col, std::int64_t cols) { return Scales::load(row, col, cols); }
};

// BF16 of sixteen codes, twice: the look-up reads five bits of a word, and the fifth belongs to the next code.
struct E2M1Bf16 {
  RECKONER_INLINE static __m512i values() {
    return _mm512_broadcast_i64x4(_mm256_setr_epi32(0x3f000000, 0x3fc03f80, 0x40404000, 0x40c04080, static_cast<int>(0xbf008000u),
                                                    static_cast<int>(0xbfc0bf80u), static_cast<int>(0xc040c000u),
                                                    static_cast<int>(0xc0c0c080u)));
  }
};
struct Int4Bf16 {
  RECKONER_INLINE static __m512i values() {
    return _mm512_broadcast_i64x4(_mm256_setr_epi32(static_cast<int>(0xc0e0c100u), static_cast<int>(0xc0a0c0c0u),
                                                    static_cast<int>(0xc040c080u), static_cast<int>(0xbf80c000u), 0x3f800000, 0x40404000,
                                                    0x40a04080, 0x40e040c0));
  }
};

// Lane order: column 4w + m of a step is word w of vector m; a lane of the sum is columns 8i to 8i + 7.
template <class Codes, class ScalesOfFormat>
struct FourBitByBf16 : ScaledBf16X<ScalesOfFormat, 4> {
  using Base = ScaledBf16X<ScalesOfFormat, 4>;
  using typename Base::Decoded;
  using typename Base::Element;
  using typename Base::Scales;
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return count / 2; }
  static constexpr int kGroupSteps = 2;

  RECKONER_INLINE static Decoded decode_codes(__m512i codes, __m512 scale) {
    const __m512i values = Codes::values();
    Decoded decoded;
    unroll<4>([&](auto m) RECKONER_INLINE_BODY { decoded.v[m] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4 * m.value), values); });
    decoded.scale = scale;
    return decoded;
  }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, const Scales& s, int j) {
    return decode_codes(four_bit_codes(row, col), s.of_step(j));
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, const Scales& s, int j, std::int64_t n) {
    return decode_codes(four_bit_codes_first(row, col, n), s.of_step(j));
  }
  static void pack_step(const float* x, Element* packed) {
    // Every eighth float of x from m on goes to the lower words of vector m, every eighth from m + 4 on to the upper ones.
    const __m512i every_eighth = _mm512_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120);
    for (int m = 0; m < 4; ++m) {
      const __m512bh words =
          _mm512_cvtne2ps_pbh(_mm512_i32gather_ps(every_eighth, x + m + 4, 4), _mm512_i32gather_ps(every_eighth, x + m, 4));
      const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4,
                                                  19, 3, 18, 2, 17, 1, 16, 0);
      Base::store(packed + m * Base::kVector, _mm512_permutexvar_epi16(interleave, (__m512i)words));
    }
  }
};

using Nvfp4ByBf16 = FourBitByBf16<E2M1Bf16, Nvfp4Scales>;
using Mxfp4ByBf16 = FourBitByBf16<E2M1Bf16, Mxfp4Scales>;
using Int4ByBf16 = FourBitByBf16<Int4Bf16, Int4Scales>;

// E2M1 with the block scale multiplied in: a BF16 holds code times scale exactly (2 bits times at most 4 bits).
template <class ByBf16, class FloatFormat>
struct E2M1Panel : ByBf16 {
  static constexpr int kScaleVectors = 0;
  using Decoded = Bf16X<4>::Decoded;
  using typename ByBf16::Scales;

  // From floats by column 8i + m: their upper halves by column 4w + m.
  RECKONER_INLINE static Decoded combine(const typename FloatFormat::Decoded& floats) {
    Decoded decoded;
    unroll<4>([&](auto m) RECKONER_INLINE_BODY {
      const __m512i lower = _mm512_srli_epi32(_mm512_castps_si512(floats.v[m]), 16);
      decoded.v[m] = _mm512_or_si512(lower, _mm512_castps_si512(floats.v[m + 4]));
    });
    return decoded;
  }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, const Scales& s, int j) {
    return combine(FloatFormat::decode(row, col, s, j));
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, const Scales& s, int j, std::int64_t n) {
    return combine(FloatFormat::decode_first(row, col, s, j, n));
  }
};
using Nvfp4Panel = E2M1Panel<Nvfp4ByBf16, Nvfp4Format>;
using Mxfp4Panel = E2M1Panel<Mxfp4ByBf16, Mxfp4Format>;

// E4M3 -> BF16, of codes in the upper bytes of words; what is in the lower ones does not matter. NaN is not kept.
RECKONER_INLINE __m512i e4m3_to_bf16(__m512i codes) {
  // Shifted by 4 bits, exponent and mantissa lie where BF16 has them; the sum moves the bias.
  const __m512i shifted = _mm512_and_si512(_mm512_srai_epi16(codes, 4), _mm512_set1_epi16(static_cast<short>(0x87f0)));
  const __m512i normal = _mm512_add_epi16(shifted, _mm512_set1_epi16(120 << 7));
  // Denormals are 0 to 7 times 2^-9.
  const __m512i denormals = _mm512_broadcast_i32x4(_mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
  const __mmask32 is_denormal = _mm512_testn_epi16_mask(codes, _mm512_set1_epi16(0x7800));
  const __m512i value = _mm512_mask_permutexvar_epi16(normal, is_denormal, _mm512_srli_epi16(codes, 8), denormals);
  const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi16(static_cast<short>(0x8000)));
  return _mm512_or_si512(value, sign);
}

// Lane order: of each 64 columns the even ones are words of one vector, the odd ones of the next; a lane of the sum is columns 4i to
// 4i + 3 of each 64. Where a row's scale holds for 128 columns, a step takes as many.
template <class ScalesOfFormat, int kVectorsOfStep, int kSteps>
struct Fp8ByBf16 : ScaledBf16X<ScalesOfFormat, kVectorsOfStep> {
  using Base = ScaledBf16X<ScalesOfFormat, kVectorsOfStep>;
  using typename Base::Decoded;
  using typename Base::Element;
  using typename Base::Scales;
  static constexpr std::int64_t kBlockRows = Scales::kBlockRows;
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return count; }
  static constexpr int kGroupSteps = kSteps;

  RECKONER_INLINE static void decode_64(__m512i codes, __m512i* v, __m512& scale) {
    const __m512i magnitude = _mm512_set1_epi8(0x7f);
    if (_mm512_cmpeq_epi8_mask(_mm512_and_si512(codes, magnitude), magnitude) != 0) [[unlikely]] {
      scale = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    }
    v[0] = e4m3_to_bf16(_mm512_slli_epi16(codes, 8));
    v[1] = e4m3_to_bf16(codes);
  }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, const Scales& s, int j) {
    Decoded decoded;
    decoded.scale = s.of_step(j);
    unroll<kVectorsOfStep / 2>(
        [&](auto i) RECKONER_INLINE_BODY { decode_64(_mm512_loadu_si512(row.data + col + 64 * i), decoded.v + 2 * i, decoded.scale); });
    return decoded;
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, const Scales& s, int j, std::int64_t n) {
    Decoded decoded;
    decoded.scale = s.of_step(j);
    unroll<kVectorsOfStep / 2>([&](auto i) RECKONER_INLINE_BODY {
      decode_64(_mm512_maskz_loadu_epi8(first64(n - 64 * i), row.data + col + 64 * i), decoded.v + 2 * i, decoded.scale);
    });
    return decoded;
  }
  static void pack_step(const float* x, Element* packed) {
    const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24, 22, 20, 18, 16,
                                          14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(1));
    for (std::int64_t col = 0; col < Base::kStep; col += 64) {
      const __m512i low = round_to_bf16(x + col);
      const __m512i high = round_to_bf16(x + col + 32);
      Base::store(packed + col, _mm512_permutex2var_epi16(low, even, high));
      Base::store(packed + col + 32, _mm512_permutex2var_epi16(low, odd, high));
    }
  }
};

using Fp8BlockByBf16 = Fp8ByBf16<Fp8BlockScales, 4, 1>;
using Fp8ChannelByBf16 = Fp8ByBf16<Fp8ChannelScales, 4, 1>;
using Mxfp8ByBf16 = Fp8ByBf16<Mxfp8Scales, 2, 4>;

}  // namespace
}  // namespace reckoner::RECKONER_ISA
