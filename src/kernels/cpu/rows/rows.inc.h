// The row functions for one instruction set.
#pragma once

#include "kernels/cpu/rows/row_functions.h"
#include "kernels/cpu/simd.h"

namespace reckoner::RECKONER_ISA {
namespace {

constexpr std::int64_t kLane = F32::kWidth;

// Calls body(i, n) for pieces of a row: n = kLane (as a constant: the compiler sees whole vectors), at the end n < kLane.
template <class Body>
RECKONER_INLINE void for_pieces(std::int64_t width, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLane <= width; i += kLane) body(i, kLane);
  if (i < width) body(i, width - i);
}

RECKONER_INLINE F32 load_some(const float* p, std::int64_t n) { return n == kLane ? load(p) : load_first(p, n); }
RECKONER_INLINE void store_some(float* p, F32 a, std::int64_t n) {
  if (n == kLane) {
    store(p, a);
  } else {
    store_first(p, a, n);
  }
}

float add_and_square(float* x, const float* add, std::int64_t width) {
  F32 acc[4] = {zero(), zero(), zero(), zero()};
  std::int64_t i = 0;
  for (; i + 4 * kLane <= width; i += 4 * kLane) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      F32 value = load(x + i + k * kLane);
      if (add != nullptr) store(x + i + k * kLane, value = value + load(add + i + k * kLane));
      acc[k] = fma(value, value, acc[k]);
    }
  }
  for_pieces(width - i, [&](std::int64_t at, std::int64_t n) {
    F32 value = load_some(x + i + at, n);
    if (add != nullptr) store_some(x + i + at, value = value + load_some(add + i + at, n), n);
    acc[0] = fma(value, value, acc[0]);
  });
  return sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

void add(float* x, const float* more, std::int64_t width) {
  for_pieces(width, [&](std::int64_t i, std::int64_t n) { store_some(x + i, load_some(x + i, n) + load_some(more + i, n), n); });
}

void scale(const float* x, float factor, const float* weight, std::int64_t width, float* y) {
  const F32 all = broadcast(factor);
  for_pieces(width, [&](std::int64_t i, std::int64_t n) { store_some(y + i, load_some(x + i, n) * all * load_some(weight + i, n), n); });
}

// Sum over a row of body(vector); the lanes beyond the row are taken out.
template <class Body>
RECKONER_INLINE float sum_over(const float* x, std::int64_t width, const Body& body) {
  F32 total = zero();
  for_pieces(width, [&](std::int64_t i, std::int64_t n) {
    F32 value = body(load_some(x + i, n));
    if (n < kLane) {
      float lanes[kLane];
      store(lanes, value);
      value = load_first(lanes, n);
    }
    total = total + value;
  });
  return sum(total);
}

void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, std::int64_t width, float* y) {
  const auto count = static_cast<float>(width);
  // The mean is rounded once, then corrected by the mean of what remains: exact enough also where it is large against the spread.
  const F32 about = broadcast(sum_over(x, width, [](F32 value) { return value; }) / count);
  const F32 rest = broadcast(sum_over(x, width, [&](F32 value) { return value - about; }) / count);
  const float variance = sum_over(x, width,
                                  [&](F32 value) {
                                    const F32 centred = value - about - rest;
                                    return centred * centred;
                                  }) /
                         count;
  const F32 inverse = broadcast(1.0f / __builtin_sqrtf(variance + epsilon));
  for_pieces(width, [&](std::int64_t i, std::int64_t n) {
    const F32 normal = (load_some(x + i, n) - about - rest) * inverse;
    store_some(y + i, normal * load_some(weight + i, n) + load_some(bias + i, n), n);
  });
}

// Each of the first kLane / 2 elements twice; and the sign flipped in even lanes; and neighbours exchanged.
#if defined(__AVX512F__)
RECKONER_INLINE F32 load_twice(const float* p) {
  const __m512i lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return {_mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(_mm256_loadu_ps(p)))};
}
RECKONER_INLINE F32 negate_even(F32 a) {
  return {_mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a.v), _mm512_set1_epi64(0x80000000ll)))};
}
RECKONER_INLINE F32 swap_neighbours(F32 a) { return {_mm512_permute_ps(a.v, 0xb1)}; }
#else
RECKONER_INLINE F32 load_twice(const float* p) {
  const __m256i lanes = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  return {_mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), lanes)};
}
RECKONER_INLINE F32 negate_even(F32 a) {
  return {_mm256_castsi256_ps(_mm256_xor_si256(_mm256_castps_si256(a.v), _mm256_set1_epi64x(0x80000000ll)))};
}
RECKONER_INLINE F32 swap_neighbours(F32 a) { return {_mm256_permute_ps(a.v, 0xb1)}; }
#endif

// One pair, as the reference rotates it.
RECKONER_INLINE void rotate_pair(float& a, float& b, float cosine, float sine) {
  const float rotated = a * cosine - b * sine;
  b = b * cosine + a * sine;
  a = rotated;
}

void rotate_interleaved(float* x, const Rotation& r) {
  std::int64_t pair = 0;
  for (; pair + kLane / 2 <= r.pairs; pair += kLane / 2) {
    const F32 value = load(x + 2 * pair);
    const F32 crossed = negate_even(swap_neighbours(value) * load_twice(r.sine + pair));
    store(x + 2 * pair, value * load_twice(r.cosine + pair) + crossed);
  }
  for (; pair < r.pairs; ++pair) rotate_pair(x[2 * pair], x[2 * pair + 1], r.cosine[pair], r.sine[pair]);
}

void rotate_half_split(float* x, const Rotation& r) {
  std::int64_t pair = 0;
  for (; pair + kLane <= r.pairs; pair += kLane) {
    const F32 a = load(x + pair);
    const F32 b = load(x + pair + r.pairs);
    const F32 cosine = load(r.cosine + pair);
    const F32 sine = load(r.sine + pair);
    store(x + pair, a * cosine - b * sine);
    store(x + pair + r.pairs, b * cosine + a * sine);
  }
  for (; pair < r.pairs; ++pair) rotate_pair(x[pair], x[pair + r.pairs], r.cosine[pair], r.sine[pair]);
}

void rotate(float* x, const Rotation& rotation) {
  if (rotation.interleaved) {
    rotate_interleaved(x, rotation);
  } else {
    rotate_half_split(x, rotation);
  }
}

void round_to_bf16(const float* x, std::int64_t width, std::uint16_t* y) {
  // The compiler makes vectors of this: no branches, only integers.
  for (std::int64_t i = 0; i < width; ++i) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, x + i, sizeof(bits));
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    y[i] = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
  }
}

// All bits where the condition holds. The compiler would make a jump of some selections, and no vectors of a loop with a jump.
RECKONER_INLINE std::uint32_t mask_of(bool condition) { return 0u - static_cast<std::uint32_t>(condition); }

// Both loops become vectors as well.
float quantise(const float* x, std::int64_t width, std::uint8_t* codes) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  std::uint32_t largest_bits = 0;  // of non-negative floats: ordered as they are
  for (std::int64_t i = 0; i < width; ++i) {
    std::uint32_t magnitude;
    __builtin_memcpy(&magnitude, x + i, sizeof(magnitude));
    magnitude &= 0x7fffffffu;
    magnitude &= mask_of(magnitude < kInfinity);
    largest_bits = magnitude > largest_bits ? magnitude : largest_bits;
  }
  float scale;
  __builtin_memcpy(&scale, &largest_bits, sizeof(scale));
  scale /= 448.0f;
  scale = scale > 0 ? scale : 1.0f;
  for (std::int64_t i = 0; i < width; ++i) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, x + i, sizeof(bits));
    const std::uint32_t finite = mask_of((bits & 0x7fffffffu) < kInfinity);
    const float magnitude = __builtin_fabsf(x[i] / scale);
    std::uint32_t rounded;
    __builtin_memcpy(&rounded, &magnitude, sizeof(rounded));
    const std::uint32_t normal = mask_of(rounded >= 0x3c800000u);  // 2^-6
    // Normal numbers: three bits of mantissa remain, and the bias of the exponent becomes 7. The others count steps of 2^-9, which is
    // where the last bit of a float from 2^14 on stands.
    rounded = ((rounded + 0x7ffffu + ((rounded >> 20) & 1u)) >> 20) - ((127u - 7u) << 3);
    const float shifted = magnitude + 0x1p14f;
    std::uint32_t steps;
    __builtin_memcpy(&steps, &shifted, sizeof(steps));
    steps &= 0xffu;
    std::uint32_t code = (rounded & normal) | (steps & ~normal);
    code = code < 0x7eu ? code : 0x7eu;
    code |= (bits >> 24) & 0x80u;
    codes[i] = static_cast<std::uint8_t>((code & finite) | (0x7fu & ~finite));
  }
  return scale;
}

void silu_mul(const float* gate, const float* up, std::int64_t width, float* y) {
  const F32 one = broadcast(1.0f);
  for_pieces(width, [&](std::int64_t i, std::int64_t n) {
    const F32 value = load_some(gate + i, n);
    store_some(y + i, value / (one + exp(zero() - value)) * load_some(up + i, n), n);
  });
}

void combine(const float* rows, std::int64_t stride, const std::int32_t* slots, const float* weights, std::int64_t top_k,
             const float* shared, std::int64_t width, float* y) {
  for_pieces(width, [&](std::int64_t i, std::int64_t n) {
    F32 total = shared != nullptr ? load_some(shared + i, n) : zero();
    for (std::int64_t k = 0; k < top_k; ++k) total = total + broadcast(weights[k]) * load_some(rows + slots[k] * stride + i, n);
    store_some(y + i, total, n);
  });
}

}  // namespace

RowFunctions row_functions() {
  return {.add_and_square = add_and_square,
          .add = add,
          .scale = scale,
          .layer_norm = layer_norm,
          .rotate = rotate,
          .round_to_bf16 = round_to_bf16,
          .quantise = quantise,
          .silu_mul = silu_mul,
          .combine = combine};
}

}  // namespace reckoner::RECKONER_ISA
