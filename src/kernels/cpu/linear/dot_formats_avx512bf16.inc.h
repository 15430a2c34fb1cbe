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

// Lane order: column 4w + m of a step is word w of vector m.
struct Nvfp4ByBf16 : Bf16X<4> {
  static constexpr std::int64_t kFewTokens = 12;
  RECKONER_INLINE static constexpr std::int64_t bytes(std::int64_t count) { return count / 2; }
  using Scales = Nvfp4Scales;
  static constexpr int kGroupSteps = 2;
  struct Decoded {
    __m512i v[kVectors];  // without the block scale
    __m512 scale;         // of each lane of the sum: columns 8i to 8i + 7
  };

  using Bf16X::multiply_add;
  RECKONER_INLINE static __m512 multiply_add(const Element* x, const Decoded& w, __m512 sum) {
    __m512 unscaled = _mm512_setzero_ps();
    unroll<kVectors>([&](auto i) RECKONER_INLINE_BODY { unscaled = dot_pairs(unscaled, load(x + i * kVector), w.v[i]); });
    return _mm512_fmadd_ps(unscaled, w.scale, sum);
  }
  RECKONER_INLINE static Scales scales(const WeightRow& row, std::int64_t col, std::int64_t cols) { return Scales::load(row, col, cols); }
  RECKONER_INLINE static Decoded decode_codes(__m512i codes, __m512 scale) {
    // BF16 of the sixteen codes, twice: the look-up reads five bits of a word, and the fifth belongs to the next code.
    const __m512i values = _mm512_broadcast_i64x4(_mm256_setr_epi32(0x3f000000, 0x3fc03f80, 0x40404000, 0x40c04080,
                                                                    static_cast<int>(0xbf008000u), static_cast<int>(0xbfc0bf80u),
                                                                    static_cast<int>(0xc040c000u), static_cast<int>(0xc0c0c080u)));
    Decoded decoded;
    unroll<kVectors>([&](auto m)
                         RECKONER_INLINE_BODY { decoded.v[m] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4 * m.value), values); });
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
    for (int m = 0; m < kVectors; ++m) {
      const __m512bh words =
          _mm512_cvtne2ps_pbh(_mm512_i32gather_ps(every_eighth, x + m + 4, 4), _mm512_i32gather_ps(every_eighth, x + m, 4));
      const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4,
                                                  19, 3, 18, 2, 17, 1, 16, 0);
      store(packed + m * kVector, _mm512_permutexvar_epi16(interleave, (__m512i)words));
    }
  }
};

// The same with the block scale multiplied in: a BF16 holds code times scale exactly (2 bits times 4 bits).
struct Nvfp4Bf16Panel : Nvfp4ByBf16 {
  using Decoded = Bf16X<4>::Decoded;

  // From floats by column 8i + m: their upper halves by column 4w + m.
  RECKONER_INLINE static Decoded combine(const Nvfp4Format::Decoded& floats) {
    Decoded decoded;
    unroll<kVectors>([&](auto m) RECKONER_INLINE_BODY {
      const __m512i lower = _mm512_srli_epi32(_mm512_castps_si512(floats.v[m]), 16);
      decoded.v[m] = _mm512_or_si512(lower, _mm512_castps_si512(floats.v[m + kVectors]));
    });
    return decoded;
  }
  RECKONER_INLINE static Decoded decode(const WeightRow& row, std::int64_t col, const Scales& s, int j) {
    return combine(Nvfp4Format::decode(row, col, s, j));
  }
  RECKONER_INLINE static Decoded decode_first(const WeightRow& row, std::int64_t col, const Scales& s, int j, std::int64_t n) {
    return combine(Nvfp4Format::decode_first(row, col, s, j, n));
  }
};

}  // namespace
}  // namespace reckoner::RECKONER_ISA
