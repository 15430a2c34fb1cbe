#include "kernels/cpu/machine/loops.h"
#include "kernels/cpu/simd.h"

namespace reckoner::avx512 {

std::uint64_t read_all(const std::byte* data, std::int64_t bytes) {
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  for (std::int64_t at = 0; at < bytes; at += 128) {
    a = _mm512_xor_si512(a, _mm512_load_si512(data + at));
    b = _mm512_xor_si512(b, _mm512_load_si512(data + at + 64));
  }
  return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(_mm512_xor_si512(a, b)));
}

float multiply_add_f32(std::int64_t rounds) {
  F32 sums[12];
  for (F32& s : sums) s = zero();
  F32 x = broadcast(0.5f);
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+v"(x.v));  // the compiler must not see that every round is alike
    for (F32& s : sums) s = fma(x, x, s);
  }
  F32 total = zero();
  for (const F32& s : sums) total = total + s;
  return sum(total);
}

}  // namespace reckoner::avx512
