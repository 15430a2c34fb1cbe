// A few float vectors of the widest kind that this file is compiled for. Kernels are written once against it, in <op>.inc.h, and compiled
// once an instruction set, in <op>_avx2.cpp and <op>_avx512.cpp, each in a namespace of its own.
//
// Code here and in the .inc.h files must be inlined or in that namespace, and must not use inline functions of the standard library that
// do not inline (containers, algorithms): the linker keeps one copy of such a function for the whole program, and that copy must not hold
// instructions that some machine lacks. tools/check_isa_objects looks for it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX512BF16__)
#define RECKONER_ISA avx512bf16
#elif defined(__AVX512F__)
#define RECKONER_ISA avx512
#elif defined(__AVX2__)
#define RECKONER_ISA avx2
#else
#error "compile this file for AVX2 or AVX-512"
#endif

#define RECKONER_INLINE [[gnu::always_inline]] inline

namespace reckoner::RECKONER_ISA {

#if defined(__AVX512F__)

struct F32 {
  static constexpr std::int64_t kWidth = 16;
  __m512 v;
};
RECKONER_INLINE F32 zero() { return {_mm512_setzero_ps()}; }
RECKONER_INLINE F32 broadcast(float x) { return {_mm512_set1_ps(x)}; }
RECKONER_INLINE F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
// The first n < kWidth elements, the others 0.
RECKONER_INLINE F32 load_first(const float* p, std::int64_t n) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p)};
}
RECKONER_INLINE F32 load_bf16(const std::uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16))};
}
// E4M3 codes to floats. Shifted by 20 bits, exponent and mantissa lie where a float has them; the product moves the bias, denormals
// included.
RECKONER_INLINE __m512 e4m3_to_float(__m128i codes) {
  const __m512i bits = _mm512_cvtepi8_epi32(codes);
  const __m512i shifted = _mm512_and_si512(_mm512_slli_epi32(bits, 20), _mm512_set1_epi32(static_cast<int>(0x87f00000u)));
  const __m512 value = _mm512_mul_ps(_mm512_castsi512_ps(shifted), _mm512_set1_ps(0x1p120f));
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(_mm512_and_si512(bits, _mm512_set1_epi32(0x7f)), _mm512_set1_epi32(0x7f));
  return _mm512_mask_mov_ps(value, nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}
RECKONER_INLINE F32 load_e4m3(const std::byte* p) { return {e4m3_to_float(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }
RECKONER_INLINE void store(float* p, F32 a) { _mm512_storeu_ps(p, a.v); }
RECKONER_INLINE void store_first(float* p, F32 a, std::int64_t n) { _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), a.v); }
RECKONER_INLINE F32 operator+(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
RECKONER_INLINE F32 operator-(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
RECKONER_INLINE F32 operator*(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
RECKONER_INLINE F32 operator/(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
RECKONER_INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
RECKONER_INLINE F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
// a * b + c, rounded once
RECKONER_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// p[0] in the even lanes, p[1] in the odd ones.
RECKONER_INLINE F32 broadcast_pair(const float* p) {
  double both;
  std::memcpy(&both, p, sizeof(both));
  return {_mm512_castpd_ps(_mm512_set1_pd(both))};
}
// out[0, 8): the sums of neighbouring lanes; out[8, 16): zeros.
RECKONER_INLINE void store_pair_sums(float* out, const F32 (&a)[1]) {
  const __m512 sums = _mm512_add_ps(a[0].v, _mm512_permute_ps(a[0].v, 0xB1));
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0);
  _mm512_storeu_ps(out, _mm512_maskz_permutexvar_ps(0xFF, even, sums));
}
// Sums in a fixed tree.
RECKONER_INLINE float sum(F32 a) { return _mm512_reduce_add_ps(a.v); }
RECKONER_INLINE float largest(F32 a) { return _mm512_reduce_max_ps(a.v); }
RECKONER_INLINE F32 round_to_int(F32 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// a * 2^n for integral n in [-126, 127]
RECKONER_INLINE F32 scale_by_power(F32 a, F32 n) {
  return {
      _mm512_mul_ps(a.v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23)))};
}

#else

struct F32 {
  static constexpr std::int64_t kWidth = 8;
  __m256 v;
};
RECKONER_INLINE __m256i first_lanes(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
RECKONER_INLINE F32 zero() { return {_mm256_setzero_ps()}; }
RECKONER_INLINE F32 broadcast(float x) { return {_mm256_set1_ps(x)}; }
RECKONER_INLINE F32 load(const float* p) { return {_mm256_loadu_ps(p)}; }
RECKONER_INLINE F32 load_first(const float* p, std::int64_t n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
RECKONER_INLINE F32 load_bf16(const std::uint16_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16))};
}
RECKONER_INLINE __m256 e4m3_to_float(__m128i codes) {
  const __m256i bits = _mm256_cvtepi8_epi32(codes);
  const __m256i shifted = _mm256_and_si256(_mm256_slli_epi32(bits, 20), _mm256_set1_epi32(static_cast<int>(0x87f00000u)));
  const __m256 value = _mm256_mul_ps(_mm256_castsi256_ps(shifted), _mm256_set1_ps(0x1p120f));
  const __m256i nan = _mm256_cmpeq_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7f)), _mm256_set1_epi32(0x7f));
  return _mm256_or_ps(value, _mm256_castsi256_ps(nan));
}
RECKONER_INLINE F32 load_e4m3(const std::byte* p) { return {e4m3_to_float(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))}; }
RECKONER_INLINE void store(float* p, F32 a) { _mm256_storeu_ps(p, a.v); }
RECKONER_INLINE void store_first(float* p, F32 a, std::int64_t n) { _mm256_maskstore_ps(p, first_lanes(n), a.v); }
RECKONER_INLINE F32 operator+(F32 a, F32 b) { return {_mm256_add_ps(a.v, b.v)}; }
RECKONER_INLINE F32 operator-(F32 a, F32 b) { return {_mm256_sub_ps(a.v, b.v)}; }
RECKONER_INLINE F32 operator*(F32 a, F32 b) { return {_mm256_mul_ps(a.v, b.v)}; }
RECKONER_INLINE F32 operator/(F32 a, F32 b) { return {_mm256_div_ps(a.v, b.v)}; }
RECKONER_INLINE F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.v, b.v)}; }
RECKONER_INLINE F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.v, b.v)}; }
RECKONER_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
RECKONER_INLINE F32 broadcast_pair(const float* p) {
  double both;
  std::memcpy(&both, p, sizeof(both));
  return {_mm256_castpd_ps(_mm256_set1_pd(both))};
}
RECKONER_INLINE void store_pair_sums(float* out, const F32 (&a)[2]) {
  const __m256d mixed = _mm256_castps_pd(_mm256_hadd_ps(a[0].v, a[1].v));  // sums 0 1 4 5 2 3 6 7
  _mm256_storeu_ps(out, _mm256_castpd_ps(_mm256_permute4x64_pd(mixed, 0xD8)));
  _mm256_storeu_ps(out + 8, _mm256_setzero_ps());
}
RECKONER_INLINE float sum(F32 a) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
RECKONER_INLINE float largest(F32 a) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}
RECKONER_INLINE F32 round_to_int(F32 a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
RECKONER_INLINE F32 scale_by_power(F32 a, F32 n) {
  return {
      _mm256_mul_ps(a.v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23)))};
}

#endif

// e^x to 2 units in the last place for x in [-87, 88]; beyond, the value at the border. NaN stays NaN.
RECKONER_INLINE F32 exp(F32 x) {
  const F32 low = broadcast(-87.0f);
  const F32 high = broadcast(88.0f);
  // min and max return their second operand when the first is NaN, so x goes second.
  const F32 clamped = min(high, max(low, x));
  const F32 n = round_to_int(clamped * broadcast(1.44269504088896341f));
  // ln 2 in two parts: the first has few enough bits that n times it is exact.
  F32 r = fma(n, broadcast(-0.693359375f), clamped);
  r = fma(n, broadcast(2.12194440e-4f), r);
  // The Taylor series to r^7; |r| <= ln 2 / 2 leaves an error below 2^-27.
  F32 p = broadcast(1.0f / 5040);
  p = fma(p, r, broadcast(1.0f / 720));
  p = fma(p, r, broadcast(1.0f / 120));
  p = fma(p, r, broadcast(1.0f / 24));
  p = fma(p, r, broadcast(1.0f / 6));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  return scale_by_power(p, n);
}

// An element of an array that need not be aligned.
RECKONER_INLINE float float_at(const std::byte* floats, std::int64_t index) {
  float value = 0;
  std::memcpy(&value, floats + 4 * index, 4);
  return value;
}

// A number as a type, so that a loop's counter may index registers and choose templates.
template <int kValue>
struct Index {
  static constexpr int value = kValue;
  constexpr operator int() const { return kValue; }
};

// Calls body(Index<0>) ... body(Index<kCount - 1>): a loop that is unrolled whatever the compiler's limits are, so that arrays of
// vectors that it indexes stay in registers. Mark the lambda RECKONER_INLINE_BODY.
#define RECKONER_INLINE_BODY __attribute__((always_inline))
template <int kCount, int kFirst = 0, class Body>
RECKONER_INLINE void unroll(const Body& body) {
  if constexpr (kFirst < kCount) {
    body(Index<kFirst>{});
    unroll<kCount, kFirst + 1>(body);
  }
}

}  // namespace reckoner::RECKONER_ISA
