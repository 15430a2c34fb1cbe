// The best top_k of a row of scores as select_top_k.cuh has it, spread over many blocks, in few launches. Scores come as numbers that order
// as they do (order_of), with a count of each first digit beside them.
#pragma once

#include "kernels/cuda/common/launch.cuh"

namespace reckoner::cuda {

// Digits of 11, 11 and 10 bits, the first from the top.
inline constexpr int kFirstDigits = 2048, kSecondDigits = 2048, kThirdDigits = 1024;
inline constexpr int kLaterDigits = kSecondDigits + kThirdDigits;
inline constexpr int kFirstShift = 21, kSecondShift = 10;
inline constexpr int kSelectChunk = 1024;  // scores a block

// Where counting from the largest on reaches what is wanted: the digits so far, and how many of those that share them are wanted.
struct Reached {
  std::uint32_t digits;
  std::int32_t wanted;
};
// Of a chunk: how many are above the first two digits that were reached, and how many share them.
struct ChunkCounts {
  std::int32_t above, alike;
};

struct Selecting {
  const std::int32_t* positions;  // [tokens]
  std::uint32_t* orders;          // [tokens, stride], valid up to the token's position
  std::int64_t stride;            // a multiple of kSelectChunk
  std::int32_t* first_digits;     // [tokens, kFirstDigits]: counts, made with the orders; zero again behind select_split()
  std::int32_t* digits;           // [tokens, kLaterDigits]: counts of the second and the third, zero at first
  Reached* reached;               // [tokens, 2]: after the first digit, after the second
  ChunkCounts* chunks;            // [tokens, stride / kSelectChunk]
  int top_k;
  std::int32_t* counts;    // [tokens], written
  std::int32_t* selected;  // [tokens, top_k], written
};

// A number that orders as scores do; both zeros are one, NaN is minus infinity.
__device__ inline std::uint32_t order_of(float score) {
  if (isnan(score)) score = -INFINITY;
  const std::uint32_t bits = __float_as_uint(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// A token at a position < top_k selects all up to its own; of such nothing but `positions` is read.
void select_split(const Selecting& selecting, std::int64_t tokens, std::int64_t max_context, cudaStream_t stream);

// The same in one launch, without any counts; max_context is above top_k and at most kMostBinScores.
inline constexpr std::int64_t kMostBinScores = 16'384;
void select_bins(const Selecting& selecting, std::int64_t tokens, std::int64_t max_context, cudaStream_t stream);

}  // namespace reckoner::cuda
