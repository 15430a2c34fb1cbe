// The top_k largest of many integers: three histogram passes find the smallest image that is kept, one more collects the indices.
#pragma once

#include "kernels/cpu/attention/index_piece.h"
#include "kernels/cpu/simd.h"

namespace reckoner::RECKONER_ISA {
namespace {

// Bit i of the masks is element i of kLane images.
#if defined(__AVX512F__)
RECKONER_INLINE unsigned equal_mask(const std::int32_t* p, std::int32_t value) {
  return _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(p), _mm512_set1_epi32(value));
}
RECKONER_INLINE unsigned greater_mask(const std::int32_t* p, std::int32_t value) {
  return _mm512_cmpgt_epi32_mask(_mm512_loadu_si512(p), _mm512_set1_epi32(value));
}
// Those whose bits from `shift` up are `prefix`.
RECKONER_INLINE unsigned prefix_mask(const std::int32_t* p, int shift, std::int32_t prefix) {
  const __m512i bits = _mm512_sra_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(shift));
  return _mm512_cmpeq_epi32_mask(bits, _mm512_set1_epi32(prefix));
}
// Writes first + i for every bit i of mask; returns how many.
RECKONER_INLINE int write_indices(std::int32_t* out, unsigned mask, std::int32_t first) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i indices = _mm512_add_epi32(lanes, _mm512_set1_epi32(first));
  const int count = __builtin_popcount(mask);
  // Compressed in a register first: compressing into memory is slow on some processors.
  const __m512i packed = _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), indices);
  _mm512_mask_storeu_epi32(out, static_cast<__mmask16>((1u << count) - 1u), packed);
  return count;
}
#else
RECKONER_INLINE __m256i load_images(const std::int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
RECKONER_INLINE unsigned mask_of(__m256i lanes) { return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(lanes))); }
RECKONER_INLINE unsigned equal_mask(const std::int32_t* p, std::int32_t value) {
  return mask_of(_mm256_cmpeq_epi32(load_images(p), _mm256_set1_epi32(value)));
}
RECKONER_INLINE unsigned greater_mask(const std::int32_t* p, std::int32_t value) {
  return mask_of(_mm256_cmpgt_epi32(load_images(p), _mm256_set1_epi32(value)));
}
RECKONER_INLINE unsigned prefix_mask(const std::int32_t* p, int shift, std::int32_t prefix) {
  return mask_of(_mm256_cmpeq_epi32(_mm256_sra_epi32(load_images(p), _mm_cvtsi32_si128(shift)), _mm256_set1_epi32(prefix)));
}
RECKONER_INLINE int write_indices(std::int32_t* out, unsigned mask, std::int32_t first) {
  int count = 0;
  for (; mask != 0; mask &= mask - 1) out[count++] = first + __builtin_ctz(mask);
  return count;
}
#endif

// Adds up the histograms and walks down from the highest bin: the bin where `wanted` is reached; `wanted` becomes what is still wanted
// of that bin.
int find_bin(std::uint32_t* histogram, std::int64_t& wanted) {
  for (std::int64_t bin = 0; bin < kBins; ++bin) {
    for (std::int64_t other = 1; other < kHistograms; ++other) histogram[bin] += histogram[other * kBins + bin];
  }
  int bin = kBins - 1;
  for (; static_cast<std::int64_t>(histogram[bin]) < wanted; --bin) wanted -= histogram[bin];
  return bin;
}

void clear(std::uint32_t* histogram) { __builtin_memset(histogram, 0, kHistograms * kBins * sizeof(std::uint32_t)); }

// The bin of the highest 11 bits in which the wanted-th largest lies, as those bits (signed).
std::int32_t find_high_bits(const std::int32_t* images, std::int64_t count, std::int64_t& wanted, std::uint32_t* histogram) {
  clear(histogram);
  std::uint32_t* middle = histogram + kBins / 2;  // bins are signed here
  std::int64_t i = 0;
  for (; i + kHistograms <= count; i += kHistograms) {
    for (std::int64_t h = 0; h < kHistograms; ++h) ++middle[h * kBins + (images[i + h] >> 21)];
  }
  for (; i < count; ++i) ++middle[images[i] >> 21];
  return find_bin(histogram, wanted) - static_cast<std::int32_t>(kBins / 2);
}

// Among the images whose bits from `above` up are `prefix`: `prefix` extended by the bits [shift, above) of the wanted-th largest.
std::int32_t find_lower_bits(const std::int32_t* images, std::int64_t count, std::int32_t prefix, int above, int shift,
                             std::int64_t& wanted, std::uint32_t* histogram) {
  clear(histogram);
  const std::int32_t low = (1 << (above - shift)) - 1;
  std::int64_t i = 0;
  for (; i + F32::kWidth <= count; i += F32::kWidth) {
    unsigned mask = prefix_mask(images + i, above, prefix);
    if (mask == (1u << F32::kWidth) - 1) {  // many equal scores, zeros most likely
      for (int lane = 0; lane < F32::kWidth; ++lane) ++histogram[lane % kHistograms * kBins + ((images[i + lane] >> shift) & low)];
      continue;
    }
    for (; mask != 0; mask &= mask - 1) {
      const int lane = __builtin_ctz(mask);
      ++histogram[lane % kHistograms * kBins + ((images[i + lane] >> shift) & low)];
    }
  }
  for (; i < count; ++i) {
    if (images[i] >> above == prefix) ++histogram[(images[i] >> shift) & low];
  }
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(prefix) << (above - shift)) | find_bin(histogram, wanted);
}

// Only the first `ties` of the set bits.
RECKONER_INLINE unsigned lowest_bits(unsigned mask, std::int64_t ties) {
  while (__builtin_popcount(mask) > ties) mask &= ~(1u << (31 - __builtin_clz(mask)));
  return mask;
}

void select(const std::int32_t* images, std::int64_t count, std::int64_t top_k, std::int32_t* indices, std::uint32_t* histogram) {
  std::int64_t ties = top_k;  // in the end: how many of those equal to the threshold are kept
  std::int32_t threshold = find_high_bits(images, count, ties, histogram);
  threshold = find_lower_bits(images, count, threshold, 21, 10, ties, histogram);
  threshold = find_lower_bits(images, count, threshold, 10, 0, ties, histogram);
  std::int64_t kept = 0;
  std::int64_t i = 0;
  for (; i + F32::kWidth <= count && kept < top_k; i += F32::kWidth) {
    unsigned equal = equal_mask(images + i, threshold);
    if (equal != 0) {
      equal = lowest_bits(equal, ties);
      ties -= __builtin_popcount(equal);
    }
    const unsigned mask = greater_mask(images + i, threshold) | equal;
    if (mask != 0) kept += write_indices(indices + kept, mask, static_cast<std::int32_t>(i));
  }
  for (; i < count && kept < top_k; ++i) {
    const bool tie = images[i] == threshold && ties > 0;
    if (tie) --ties;
    if (tie || images[i] > threshold) indices[kept++] = static_cast<std::int32_t>(i);
  }
}

}  // namespace
}  // namespace reckoner::RECKONER_ISA
