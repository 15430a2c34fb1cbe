// latent_query over a format: y[c] = sum_p q[p] w[p][c]. Lanes run along c, and every sum over p in order, whatever the number of tokens:
// a result does not depend on what else is in the batch.
#pragma once

#include <cstring>

#include "kernels/cpu/latent/latent_query.h"
#include "kernels/cpu/simd.h"

namespace reckoner::RECKONER_ISA {
namespace {

inline constexpr std::int64_t kWidth = F32::kWidth;

// Formats: decode(data, scales, col) gives columns [col, col + kWidth) of a row, decode_first(..., n) only the first n of them; kBlockRows
// rows share their scales.
template <class Format, std::int64_t kBytes>
struct PlainQueryFormat {
  static constexpr std::int64_t kBlockRows = 1;
  RECKONER_INLINE static F32 decode(const std::byte* data, const std::byte*, std::int64_t col) {
    return Format::widen(data + kBytes * col);
  }
  RECKONER_INLINE static F32 decode_first(const std::byte* data, const std::byte*, std::int64_t col, std::int64_t n) {
    alignas(64) std::byte first[kBytes * kWidth] = {};
    std::memcpy(first, data + kBytes * col, static_cast<std::size_t>(kBytes * n));
    return Format::widen(first);
  }
};

struct F32Query : PlainQueryFormat<F32Query, 4> {
  RECKONER_INLINE static F32 widen(const std::byte* p) { return load(reinterpret_cast<const float*>(p)); }
};

struct Bf16Query : PlainQueryFormat<Bf16Query, 2> {
  RECKONER_INLINE static F32 widen(const std::byte* p) { return load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
};

struct F16Query : PlainQueryFormat<F16Query, 2> {
  RECKONER_INLINE static F32 widen(const std::byte* p) {
#if defined(__AVX512F__)
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
#else
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
#endif
  }
};

// ---- Formats with scales: Codes gives values(data, col), Scale gives scale(scales, col). A vector lies within one block of columns ----

template <class Codes, class Scale>
struct ScaledQuery {
  static constexpr std::int64_t kBlockRows = Scale::kBlockRows;
  RECKONER_INLINE static F32 decode(const std::byte* data, const std::byte* scales, std::int64_t col) {
    return Codes::values(data, col) * Scale::scale(scales, col);
  }
  RECKONER_INLINE static F32 decode_first(const std::byte* data, const std::byte* scales, std::int64_t col, std::int64_t n) {
    return Codes::values_first(data, col, n) * Scale::scale(scales, col);
  }
};

struct ScaleOfRow {
  static constexpr std::int64_t kBlockRows = 1;
};
struct Nvfp4Scale : ScaleOfRow {
  RECKONER_INLINE static F32 scale(const std::byte* scales, std::int64_t col) {
    return {e4m3_to_float(_mm_set1_epi8(static_cast<char>(scales[col / 16])))};
  }
};
struct MxScale : ScaleOfRow {
  RECKONER_INLINE static F32 scale(const std::byte* scales, std::int64_t col) {
    const __m128i code = _mm_cvtsi32_si128(static_cast<int>(scales[col / 32]));
#if defined(__AVX512F__)
    return broadcast(_mm512_cvtss_f32(e8m0_to_float(code)));
#else
    return broadcast(_mm_cvtss_f32(e8m0_to_float(code)));
#endif
  }
};
struct Int4Scale : ScaleOfRow {
  RECKONER_INLINE static F32 scale(const std::byte* scales, std::int64_t col) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, scales + col / 32 * 2, 2);
    return broadcast(_mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits << 16))));
  }
};
struct Fp8BlockScale {
  static constexpr std::int64_t kBlockRows = kDotBlockSide;
  RECKONER_INLINE static F32 scale(const std::byte* scales, std::int64_t col) { return broadcast(float_at(scales, col / kDotBlockSide)); }
};
struct Fp8ChannelScale : ScaleOfRow {
  RECKONER_INLINE static F32 scale(const std::byte* scales, std::int64_t) { return broadcast(float_at(scales, 0)); }
};

// Four bits: rows are whole blocks, and so whole vectors.
template <class Codes>
struct FourBitCodes {
  RECKONER_INLINE static F32 values(const std::byte* data, std::int64_t col) { return Codes::look_up(dwords(data + col / 2)); }
  RECKONER_INLINE static F32 values_first(const std::byte* data, std::int64_t col, std::int64_t) { return values(data, col); }

 private:
  // A code in the low four bits of each dword; what is above is not cleared. A byte goes to each quarter word of 64 bits; its high code
  // moves to the upper dword.
#if defined(__AVX512F__)
  RECKONER_INLINE static __m512i dwords(const std::byte* codes) {
    const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
    return _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28));
  }
#else
  RECKONER_INLINE static __m256i dwords(const std::byte* codes) {
    std::int32_t four = 0;
    std::memcpy(&four, codes, 4);
    const __m256i bytes = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
    return _mm256_or_si256(bytes, _mm256_slli_epi64(bytes, 28));
  }
#endif
};

struct E2M1Values : FourBitCodes<E2M1Values> {
#if defined(__AVX512F__)
  RECKONER_INLINE static F32 look_up(__m512i codes) { return {_mm512_permutexvar_ps(codes, E2M1Codes::values())}; }
#else
  RECKONER_INLINE static F32 look_up(__m256i codes) {
    const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    // The look-up reads the low three bits of each dword; the fourth is the sign.
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(codes, 28), _mm256_set1_epi32(INT32_MIN));
    return {_mm256_or_ps(_mm256_permutevar8x32_ps(magnitudes, codes), _mm256_castsi256_ps(sign))};
  }
#endif
};

struct Int4Values : FourBitCodes<Int4Values> {
#if defined(__AVX512F__)
  RECKONER_INLINE static F32 look_up(__m512i codes) { return {_mm512_permutexvar_ps(codes, Int4Codes::values())}; }
#else
  RECKONER_INLINE static F32 look_up(__m256i codes) {
    const __m256i code = _mm256_and_si256(codes, _mm256_set1_epi32(15));
    return {_mm256_cvtepi32_ps(_mm256_sub_epi32(code, _mm256_set1_epi32(8)))};
  }
#endif
};

struct E4M3Values {
  RECKONER_INLINE static F32 values(const std::byte* data, std::int64_t col) { return widen(data + col); }
  RECKONER_INLINE static F32 values_first(const std::byte* data, std::int64_t col, std::int64_t n) {
    alignas(16) std::byte first[kWidth] = {};
    std::memcpy(first, data + col, static_cast<std::size_t>(n));
    return widen(first);
  }

 private:
  RECKONER_INLINE static F32 widen(const std::byte* p) {
#if defined(__AVX512F__)
    return {e4m3_to_float(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
#else
    return {e4m3_to_float(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
#endif
  }
};

using Nvfp4Query = ScaledQuery<E2M1Values, Nvfp4Scale>;
using Mxfp4Query = ScaledQuery<E2M1Values, MxScale>;
using Int4Query = ScaledQuery<Int4Values, Int4Scale>;
using Fp8BlockQuery = ScaledQuery<E4M3Values, Fp8BlockScale>;
using Fp8ChannelQuery = ScaledQuery<E4M3Values, Fp8ChannelScale>;
using Mxfp8Query = ScaledQuery<E4M3Values, MxScale>;

template <class Format>
struct Query {
#if defined(__AVX512F__)
  static constexpr int kFewTokens = 4;
  static constexpr int kTileVectors = 4;  // 6 x 4 sums, 4 vectors of weights, one of q: 29 registers
#else
  static constexpr int kFewTokens = 2;
  static constexpr int kTileVectors = 2;  // 6 x 2 sums, 2 vectors of weights, one of q: 15 registers
#endif
  static constexpr int kTileTokens = 6;
  static constexpr int kRows = 4;  // of w that few() takes in one go
  static constexpr std::int64_t kTileCols = kTileVectors * kWidth;

  RECKONER_INLINE static void store_up_to(float* y, F32 a, std::int64_t n) {
    if (n >= kWidth) {
      store(y, a);
    } else {
      store_first(y, a, n);
    }
  }
  RECKONER_INLINE static F32 load_up_to(const float* y, std::int64_t n) { return n >= kWidth ? load(y) : load_first(y, n); }
  RECKONER_INLINE static F32 decode_up_to(const QueryTask& task, std::int64_t p, std::int64_t col, std::int64_t n) {
    const std::byte* data = task.data + p * task.row_bytes;
    const std::byte* scales = task.scales + (task.first_row + p) / Format::kBlockRows * task.scale_row_bytes;
    return n >= kWidth ? Format::decode(data, scales, col) : Format::decode_first(data, scales, col, n);
  }

  // Adds rows [p, p + kCount) to y of kTokens tokens.
  template <int kTokens, int kCount>
  RECKONER_INLINE static void add_rows(const QueryTask& task, std::int64_t token, std::int64_t p) {
    F32 q[kTokens][kCount];
    unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY {
      unroll<kCount>([&](auto r) RECKONER_INLINE_BODY { q[t][r] = broadcast(task.q[(token + t) * task.q_stride + p + r]); });
    });
    const bool last = p + kCount == task.nope;
    const std::int64_t end = task.first_col + task.cols;
    for (std::int64_t col = task.first_col; col < end; col += kWidth) {
      F32 w[kCount];
      unroll<kCount>([&](auto r) RECKONER_INLINE_BODY { w[r] = decode_up_to(task, p + r, col, end - col); });
      unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY {
        float* y = task.y + (token + t) * task.y_stride + col;
        F32 sum = p == 0 ? zero() : load_up_to(y, end - col);
        unroll<kCount>([&](auto r) RECKONER_INLINE_BODY { sum = fma(q[t][r], w[r], sum); });
        store_up_to(y, last ? sum * broadcast(task.scale) : sum, end - col);
      });
    }
  }
  template <int kTokens>
  [[gnu::noinline]] static void few_tokens(const QueryTask& task, std::int64_t token) {
    std::int64_t p = 0;
    for (; p + kRows <= task.nope; p += kRows) add_rows<kTokens, kRows>(task, token, p);
    for (; p < task.nope; ++p) add_rows<kTokens, 1>(task, token, p);
  }
  static void few(const QueryTask& task) {
    std::int64_t token = 0;
    for (; token + kFewTokens <= task.tokens; token += kFewTokens) few_tokens<kFewTokens>(task, token);
    unroll<kFewTokens>([&](auto n) RECKONER_INLINE_BODY {
      if constexpr (n > 0) {
        if (task.tokens - token == n) few_tokens<n>(task, token);
      }
    });
  }

  // kTokens rows of q times the panel's columns from `first` on.
  template <int kTokens>
  [[gnu::noinline]] static void tile(const QueryTask& task, std::int64_t token, std::int64_t first,
                                     const float* panel /* [nope, kTileCols] */) {
    F32 sum[kTokens][kTileVectors];
    unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY { unroll<kTileVectors>([&](auto v) RECKONER_INLINE_BODY { sum[t][v] = zero(); }); });
    const float* q = task.q + token * task.q_stride;
    for (std::int64_t p = 0; p < task.nope; ++p, panel += kTileCols) {
      F32 w[kTileVectors];
      unroll<kTileVectors>([&](auto v) RECKONER_INLINE_BODY { w[v] = load(panel + v * kWidth); });
      unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY {
        const F32 q_at = broadcast(q[t * task.q_stride + p]);
        unroll<kTileVectors>([&](auto v) RECKONER_INLINE_BODY { sum[t][v] = fma(q_at, w[v], sum[t][v]); });
      });
    }
    unroll<kTokens>([&](auto t) RECKONER_INLINE_BODY {
      unroll<kTileVectors>([&](auto v) RECKONER_INLINE_BODY {
        const std::int64_t n = task.cols - first - v * kWidth;
        float* y = task.y + (token + t) * task.y_stride + task.first_col + first + v * kWidth;
        if (n > 0) store_up_to(y, sum[t][v] * broadcast(task.scale), n);
      });
    });
  }
  // Columns [first, first + kTileCols) of the task's; those that it lacks are 0.
  static void expand(const QueryTask& task, std::int64_t first, float* panel /* [nope, kTileCols] */) {
    for (std::int64_t p = 0; p < task.nope; ++p, panel += kTileCols) {
      unroll<kTileVectors>([&](auto v) RECKONER_INLINE_BODY {
        const std::int64_t at = first + v * kWidth;
        store(panel + v * kWidth, at < task.cols ? decode_up_to(task, p, task.first_col + at, task.cols - at) : zero());
      });
    }
  }
  static void many(const QueryTask& task, float* panel) {
    for (std::int64_t first = 0; first < task.cols; first += kTileCols) {
      expand(task, first, panel);
      std::int64_t token = 0;
      for (; token + kTileTokens <= task.tokens; token += kTileTokens) tile<kTileTokens>(task, token, first, panel);
      unroll<kTileTokens>([&](auto n) RECKONER_INLINE_BODY {
        if constexpr (n > 0) {
          if (task.tokens - token == n) tile<n>(task, token, first, panel);
        }
      });
    }
  }
};

template <class Format>
constexpr QueryCore query_core() {
  return {.few_tokens = Query<Format>::kFewTokens, .few = Query<Format>::few, .many = Query<Format>::many};
}

}  // namespace
}  // namespace reckoner::RECKONER_ISA
