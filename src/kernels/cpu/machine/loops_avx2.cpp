#include "kernels/cpu/machine/loops.h"
#include "kernels/cpu/simd.h"

namespace reckoner::avx2 {

std::uint64_t read_all(const std::byte* data, std::int64_t bytes) {
  __m256i a = _mm256_setzero_si256();
  __m256i b = a;
  for (std::int64_t at = 0; at < bytes; at += 64) {
    a = _mm256_xor_si256(a, _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at)));
    b = _mm256_xor_si256(b, _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at + 32)));
  }
  return static_cast<std::uint64_t>(_mm256_extract_epi64(_mm256_xor_si256(a, b), 0));
}

float multiply_add_f32(std::int64_t rounds) {
  F32 sums[12];
  for (F32& s : sums) s = zero();
  F32 x = broadcast(0.5f);
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+x"(x.v));  // the compiler must not see that every round is alike
    for (F32& s : sums) s = fma(x, x, s);
  }
  F32 total = zero();
  for (const F32& s : sums) total = total + s;
  return sum(total);
}

}  // namespace reckoner::avx2
