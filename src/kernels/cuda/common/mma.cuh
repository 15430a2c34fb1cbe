// The matrix instruction that every device since 8.0 has, and what feeds it.
#pragma once

#include <cstdint>

namespace reckoner::cuda {

// d += a b for a [16, 16] and b [16, 8] of BF16, d [16, 8] of float. With lane = 4 g + t: a holds the pairs of columns (2t, 2t + 1) of rows
// g and g + 8, then the pairs (2t + 8, 2t + 9) of the same; b the same pairs of rows of column g; d the columns 2t and 2t + 1 of row g,
// then of row g + 8. The 16 inner indices may stand for any 16 columns, as long as a and b agree.
__device__ inline void mma_bf16(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                                std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Two products of BF16 numbers, each rounded once.
__device__ inline std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}

// Two floats rounded to BF16: `low` in the low half.
__device__ inline std::uint32_t round_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// A float is the sum of three BF16 numbers, each the upper half of what the ones before leave: no rounding anywhere. Gives the pairs of the
// first part and leaves the rest in `low` and `high`.
__device__ inline std::uint32_t take_pair(float& low, float& high) {
  const std::uint32_t l = __float_as_uint(low), h = __float_as_uint(high);
  low -= __uint_as_float(l & 0xffff0000u);
  high -= __uint_as_float(h & 0xffff0000u);
  return __byte_perm(l, h, 0x7632);
}

// As kParts BF16 pairs: one that is rounded, or three that are exact (two: off by 2^-16).
template <int kParts>
__device__ void split_pair(float low, float high, std::uint32_t (&parts)[kParts]) {
  if constexpr (kParts == 1) {
    parts[0] = round_pair(low, high);
  } else {
#pragma unroll
    for (int part = 0; part < kParts; ++part) parts[part] = take_pair(low, high);
  }
}

}  // namespace reckoner::cuda
