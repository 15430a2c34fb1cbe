// The instructions of src/kernels/cuda/common/instructions.cuh, where what each does is said, on the emulated GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstring>

namespace reckoner::cuda {

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulated::shared_memory());
}

inline std::uint32_t shared_address(const void* pointer) { return emulated::address_in_shared(pointer); }

inline void let_next_begin() {}
inline void wait_for_previous() {}

template <class Word>
void copy_word_async(void* to, const void* from, bool there) {
  // As hardware: what is not aligned is an error, which UndefinedBehaviorSanitizer reports here.
  auto* word = static_cast<Word*>(to);
  const auto* source = static_cast<const Word*>(from);
  emulated::begin_later([word, source, there] { *word = there ? *source : Word{}; });
}
inline void copy_async(void* to, const void* from, bool there) { copy_word_async<uint4>(to, from, there); }
inline void copy_async_to(std::uint32_t to, const void* from) { copy_async(emulated::shared_at(to), from, true); }
template <int kBytes>
void copy_few_async(void* to, const void* from) {
  static_assert(kBytes == 4 || kBytes == 8);
  copy_word_async<std::conditional_t<kBytes == 4, std::uint32_t, uint2>>(to, from, true);
}
template <int kBytes>
void copy_few_async_to(std::uint32_t to, const void* from) {
  copy_few_async<kBytes>(emulated::shared_at(to), from);
}
inline void commit_copies() { emulated::end_group(); }
template <int kLeft>
void wait_for_copies() {
  emulated::finish_groups(kLeft);
}

struct MatrixLane {
  std::uint16_t row[8];
  std::uint32_t* out;
};
template <bool kTransposed>
RECKONER_NO_RACE void matrices_of_lanes(void* const* lanes) {
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::uint32_t pair[2];
      for (int i = 0; i < 2; ++i) {
        const int row = kTransposed ? 2 * t + i : g, column = kTransposed ? g : 2 * t + i;
        pair[i] = static_cast<const MatrixLane*>(lanes[matrix * 8 + row])->row[column];
      }
      static_cast<MatrixLane*>(lanes[lane])->out[matrix] = pair[0] | pair[1] << 16;
    }
  }
}
template <bool kTransposed>
void load_matrices_of(std::uint32_t (&out)[4], const void* row) {
  MatrixLane own{.row = {}, .out = out};
  const uint4 piece = *static_cast<const uint4*>(row);
  std::memcpy(own.row, &piece, sizeof(piece));
  emulated::meet_lanes(0xffffffffu, &own, matrices_of_lanes<kTransposed>);
}
inline void load_matrices(std::uint32_t (&out)[4], const void* row) { load_matrices_of<false>(out, row); }
inline void load_matrices_transposed(std::uint32_t (&out)[4], const void* row) { load_matrices_of<true>(out, row); }

inline float low_of_pair(std::uint32_t pair) { return __uint_as_float(pair << 16); }
inline float high_of_pair(std::uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// What a lane holds of the large operand of either matrix instruction, sixteen rows of a warp.
RECKONER_NO_RACE inline void place_pairs(float (&a)[16][16], int lane, const std::uint32_t* pairs) {
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i % 2 * 8, column = lane % 4 * 2 + i / 2 * 8;
    a[row][column] = low_of_pair(pairs[i]), a[row][column + 1] = high_of_pair(pairs[i]);
  }
}

struct MmaLane {
  float* d;
  std::uint32_t a[4], b[2];
};
RECKONER_NO_RACE inline void mma_of_lanes(void* const* lanes) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<const MmaLane*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    place_pairs(a, lane, own.a);
    for (int i = 0; i < 2; ++i) b[2 * t + i * 8][g] = low_of_pair(own.b[i]), b[2 * t + 1 + i * 8][g] = high_of_pair(own.b[i]);
  }
  for (int row = 0; row < 16; ++row) {
    // Hardware adds products that are not rounded, too, in an order of its own.
    double sums[8];
    for (int column = 0; column < 8; ++column)
      sums[column] = static_cast<const MmaLane*>(lanes[row % 8 * 4 + column / 2])->d[row / 8 * 2 + column % 2];
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) sums[column] += static_cast<double>(a[row][k] * b[k][column]);
    }
    for (int column = 0; column < 8; ++column)
      static_cast<const MmaLane*>(lanes[row % 8 * 4 + column / 2])->d[row / 8 * 2 + column % 2] = static_cast<float>(sums[column]);
  }
}
inline void mma_bf16(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                     std::uint32_t b1) {
  MmaLane own{.d = d, .a = {a0, a1, a2, a3}, .b = {b0, b1}};
  emulated::meet_lanes(0xffffffffu, &own, mma_of_lanes);
}

// To nearest, ties to even; every NaN is the same one, as cvt makes it.
inline std::uint32_t rounded_to_bf16(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
inline std::uint32_t round_pair(float low, float high) { return rounded_to_bf16(low) | rounded_to_bf16(high) << 16; }
// A product of two BF16 numbers is exact as a float, but for what is too small or too large for one.
inline std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  return round_pair(low_of_pair(a) * low_of_pair(b), high_of_pair(a) * high_of_pair(b));
}

inline float half_to_float(std::uint32_t bits) { return static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits))); }

inline uint4 load_once(const void* at) { return *static_cast<const uint4*>(at); }

// Eight bytes at a time arrive together, which is what callers count on.
inline void store_for_others(uint4* to, const uint4& value) {
  auto* words = reinterpret_cast<std::uint64_t*>(to);
  __atomic_store_n(words, std::uint64_t{value.y} << 32 | value.x, __ATOMIC_RELAXED);
  __atomic_store_n(words + 1, std::uint64_t{value.w} << 32 | value.z, __ATOMIC_RELAXED);
}
inline uint4 load_of_others(const uint4* from) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(from);
  const std::uint64_t first = __atomic_load_n(words, __ATOMIC_RELAXED), second = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
  return {static_cast<unsigned>(first), static_cast<unsigned>(first >> 32), static_cast<unsigned>(second),
          static_cast<unsigned>(second >> 32)};
}

template <class T>
void make_now(T&) {}

}  // namespace reckoner::cuda
