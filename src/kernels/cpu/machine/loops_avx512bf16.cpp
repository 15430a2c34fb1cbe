#include <immintrin.h>

#include "kernels/cpu/machine/loops.h"

namespace reckoner::avx512bf16 {

float multiply_add_bf16(std::int64_t rounds) {
  __m512 sums[12];
  for (__m512& s : sums) s = _mm512_setzero_ps();
  __m512bh x = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f00));  // 0.5
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+v"(x));  // the compiler must not see that every round is alike
    for (__m512& s : sums) s = _mm512_dpbf16_ps(s, x, x);
  }
  __m512 total = _mm512_setzero_ps();
  for (const __m512& s : sums) total = _mm512_add_ps(total, s);
  return _mm512_reduce_add_ps(total);
}

}  // namespace reckoner::avx512bf16
