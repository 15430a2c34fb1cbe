// The scoring of index_select for one instruction set. Layouts: cache_rows.h, index_piece.h.
#pragma once

#include "kernels/cpu/attention/index_piece.h"
#include "kernels/cpu/attention/tile.inc.h"
#include "kernels/cpu/attention/top_k.inc.h"

namespace reckoner::RECKONER_ISA {
namespace {

// scores[key] = sum over heads of weights[head] * relu(q[head] . key), for a register tile of packed keys. The sum over heads runs over
// the groups in order, then across the vector in a fixed tree.
void score_tile(const IndexToken& token, const float* packed, std::int64_t chunks, std::int64_t groups, float* scores) {
  F32 total[kTileKeys];
#pragma GCC unroll 16
  for (int key = 0; key < kTileKeys; ++key) total[key] = zero();
  for (std::int64_t group = 0; group < groups; ++group) {
    F32 acc[kTileKeys][kVectors];
    multiply_tile(packed, token.panels + group * chunks * kChunk * kHeadLanes, chunks, acc);
    const float* weights = token.weights + group * kHeadLanes;
#pragma GCC unroll 16
    for (int key = 0; key < kTileKeys; ++key) {
      // The product stands second in max: a NaN stays.
      F32 sum_of_heads = max(zero(), acc[key][0]) * load(weights);
#pragma GCC unroll 2
      for (int v = 1; v < kVectors; ++v) sum_of_heads = fma(max(zero(), acc[key][v]), load(weights + v * kLane), sum_of_heads);
      total[key] = total[key] + sum_of_heads;
    }
  }
#pragma GCC unroll 16
  for (int key = 0; key < kTileKeys; ++key) scores[key] = sum(total[key]);
}

// Integers that compare like floats (index_piece.h).
void write_images(const float* scores, std::int32_t* images) {
  for (std::int64_t i = 0; i < kBlockKeys; ++i) {
    const float score = scores[i] == scores[i] ? scores[i] + 0.0f : -__builtin_inff();  // -0 + 0 is +0
    std::int32_t bits;
    __builtin_memcpy(&bits, &score, sizeof(bits));
    images[i] = bits ^ ((bits >> 31) & 0x7fffffff);
  }
}

void score(const IndexPiece& piece) {
  const std::int64_t chunks = (piece.rows.width + kChunk - 1) / kChunk;
  float scores[kBlockKeys] = {};
  for (std::int64_t done = 0; done < piece.count; done += kBlockKeys) {
    const std::int64_t first = piece.first + done;
    const std::int64_t count = piece.count - done < kBlockKeys ? piece.count - done : kBlockKeys;
    for (std::int64_t key = 0; key < count; ++key) {
      pack_row(piece.rows, {.first = 0, .width = piece.rows.width}, piece.rows.row(piece.pages, first + key), piece.packed + key * kChunk);
    }
    pack_padding(piece.rows.width, count, piece.packed);
    for (std::int64_t t = 0; t < piece.token_count; ++t) {
      const IndexToken& token = piece.tokens[t];
      const std::int64_t wanted = token.context - first < count ? token.context - first : count;
      if (wanted <= 0) continue;
      for (std::int64_t key = 0; key < wanted; key += kTileKeys) {
        score_tile(token, piece.packed + key * kChunk, chunks, piece.groups, scores + key);
      }
      write_images(scores, token.images + first);
    }
  }
}

}  // namespace

IndexFunctions index_functions() { return {.score = score, .select = select}; }

}  // namespace reckoner::RECKONER_ISA
