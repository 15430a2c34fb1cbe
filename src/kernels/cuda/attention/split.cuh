// Attention over pieces of a sequence: how it is cut, what a piece leaves behind, and how pieces are put together. The cut depends on the
// longest context only, so that a token gets the same bits alone and in company.
#pragma once

#include "kernels/cuda/common/launch.cuh"

namespace reckoner::cuda {

// Attended keys [s * length, (s + 1) * length) are piece s.
struct Split {
  std::int64_t pieces, length;
};

inline constexpr std::int64_t kMostPieces = 64;

inline Split split_keys(std::int64_t attended, std::int64_t least, std::int64_t most_pieces) {
  CHECK(most_pieces <= kMostPieces);
  const std::int64_t pieces = std::clamp<std::int64_t>((attended + least - 1) / least, 1, most_pieces);
  const std::int64_t length = round_up(std::max<std::int64_t>((attended + pieces - 1) / pieces, 1), 64);
  return {.pieces = (std::max<std::int64_t>(attended, 1) + length - 1) / length, .length = length};
}

// What each piece leaves in the workspace, for tokens of one launch.
struct Partials {
  float* sums;     // [tokens, heads, pieces, width]: of p * value, p relative to the piece's largest score
  float* maxima;   // [tokens, heads, pieces]
  float* weights;  // [tokens, heads, pieces]: sum of p
};

inline std::int64_t partial_bytes(std::int64_t heads, std::int64_t width, const Split& split) {
  return heads * split.pieces * (width + 2) * 4;
}

// How many tokens one launch may take, so that the workspace stays modest.
inline std::int64_t tokens_at_once(std::int64_t tokens, std::int64_t token_bytes) {
  constexpr std::int64_t kMostBytes = 128 << 20;
  return std::clamp<std::int64_t>(kMostBytes / token_bytes, 1, std::max<std::int64_t>(tokens, 1));
}

inline Partials partials_in(std::byte* workspace, std::int64_t tokens, std::int64_t heads, std::int64_t width, const Split& split) {
  auto* floats = reinterpret_cast<float*>(workspace);
  const std::int64_t rows = tokens * heads * split.pieces;
  return {.sums = floats, .maxima = floats + rows * width, .weights = floats + rows * (width + 1)};
}

// y[t, n, :] from the pieces, in their order. `counts` [tokens]: attended keys; without it position + 1.
void combine_pieces(const Partials& partials, const Split& split, const std::int32_t* counts, const std::int32_t* positions, float* y,
                    std::int64_t tokens, std::int64_t heads, std::int64_t width, cudaStream_t stream);

// The same, each piece's maximum and weight read by a lane of its own instead of one after the other.
void combine_pieces_at_once(const Partials& partials, const Split& split, const std::int32_t* counts, const std::int32_t* positions,
                            float* y, std::int64_t tokens, std::int64_t heads, std::int64_t width, cudaStream_t stream);
using CombinePieces = decltype(combine_pieces);

}  // namespace reckoner::cuda
