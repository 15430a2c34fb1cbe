// The arithmetic of attention for one instruction set. Layouts: cache_rows.h, attend_piece.h.
#pragma once

#include "kernels/cpu/attention/attend_piece.h"
#include "kernels/cpu/attention/tile.inc.h"

namespace reckoner::RECKONER_ISA {
namespace {

// Heads of a register tile of the output; its other side is one chunk of the value.
constexpr int kTileHeads = kVectors == 1 ? 16 : 4;

void pack_block(const AttendPiece& piece, std::int64_t first, std::int64_t count) {
  for (std::int64_t key = 0; key < count; ++key) {
    const std::int64_t position = piece.positions != nullptr ? piece.positions[first + key] : first + key;
    pack_row(piece.keys, piece.key, piece.keys.row(piece.pages, position), piece.packed_keys + key * kChunk);
    if (piece.values.first == nullptr) continue;
    pack_row(piece.values, piece.value, piece.values.row(piece.pages, position), piece.packed_values + key * kChunk);
  }
  pack_padding(piece.key.width, count, piece.packed_keys);
}

// scores[key][head] of a packed block.
void score_block(const AttendPiece& piece, const float* panel, std::int64_t count) {
  const std::int64_t chunks = (piece.key.width + kChunk - 1) / kChunk;
  for (std::int64_t key = 0; key < count; key += kTileKeys) {
    F32 acc[kTileKeys][kVectors];
    multiply_tile(piece.packed_keys + key * kChunk, panel, chunks, acc);
#pragma GCC unroll 16
    for (int k = 0; k < kTileKeys; ++k) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) store(piece.scores + (key + k) * kHeadLanes + v * kLane, acc[k][v]);
    }
  }
}

// The same from a panel of pairs, for the first kFewHeads heads; the others get zeros.
void score_block_pairs(const AttendPiece& piece, const float* panel, std::int64_t count) {
  const std::int64_t chunks = (piece.key.width + kChunk - 1) / kChunk;
  for (std::int64_t key = 0; key < count; key += kTileKeys) {
    F32 acc[kTileKeys][kVectors];
    multiply_tile_pairs(piece.packed_keys + key * kChunk, panel, chunks, acc);
#pragma GCC unroll 16
    for (int k = 0; k < kTileKeys; ++k) store_pair_sums(piece.scores + (key + k) * kHeadLanes, acc[k]);
  }
}

// Turns scores into exp(score - largest so far), brings largest and sum of the partial up to date; correction[head] is what the partial's
// y must be multiplied with. A NaN reaches the sum and stays there.
void soften_block(float* scores, std::int64_t count, bool first, float* partial, float* correction) {
  for (int lane = 0; lane < kHeadLanes; lane += kLane) {
    float* column = scores + lane;
    const F32 before = first ? load(column) : load(partial + lane);
    F32 top = before;
    for (std::int64_t key = 0; key < count; ++key) top = max(top, load(column + key * kHeadLanes));
    F32 total = zero();
    for (std::int64_t key = 0; key < count; ++key) {
      const F32 p = exp(load(column + key * kHeadLanes) - top);
      store(column + key * kHeadLanes, p);
      total = total + p;
    }
    const F32 factor = exp(before - top);
    store(correction + lane, factor);
    store(partial + lane, top);
    store(partial + Partial::kSum + lane, first ? total : fma(load(partial + Partial::kSum + lane), factor, total));
  }
}

// A register tile of the output: kHeads heads of kChunks chunks of the value. `out` and `row` stand at its first chunk and head.
template <int kHeads, int kChunks>
RECKONER_INLINE void accumulate_tile(const float* row, const float* p, std::int64_t count, bool first, const float* correction,
                                     float* out) {
  constexpr int kParts = kChunks * kVectors;  // vectors of a head
  F32 acc[kHeads][kParts];
#pragma GCC unroll 16
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kParts; ++v) {
      float* at = out + (v / kVectors * kHeadLanes + h) * kChunk + v % kVectors * kLane;
      acc[h][v] = first ? zero() : load(at) * broadcast(correction[h]);
    }
  }
  for (std::int64_t key = 0; key < count; ++key, row += kChunk, p += kHeadLanes) {
    F32 values[kParts];
#pragma GCC unroll 4
    for (int v = 0; v < kParts; ++v) values[v] = load(row + v / kVectors * kChunkStride + v % kVectors * kLane);
#pragma GCC unroll 16
    for (int h = 0; h < kHeads; ++h) {
      const F32 weight = broadcast(p[h]);
#pragma GCC unroll 4
      for (int v = 0; v < kParts; ++v) acc[h][v] = fma(weight, values[v], acc[h][v]);
    }
  }
#pragma GCC unroll 16
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kParts; ++v) store(out + (v / kVectors * kHeadLanes + h) * kChunk + v % kVectors * kLane, acc[h][v]);
  }
}

// y[chunk][head][.] = y * correction[head] + sum over keys of p[key][head] * value[key][chunk], for the first `heads` heads.
void accumulate_block(const AttendPiece& piece, std::int64_t heads, std::int64_t count, bool first, const float* correction, float* y) {
  const std::int64_t chunks = (piece.value.width + kChunk - 1) / kChunk;
  std::int64_t chunk = 0;
  if constexpr (kTileHeads > kFewHeads) {  // a tile of all heads is too wide for few: two chunks fill it
    for (; heads <= kFewHeads && chunk + 2 <= chunks; chunk += 2) {
      accumulate_tile<kFewHeads, 2>(piece.packed_values + chunk * kChunkStride, piece.scores, count, first, correction,
                                    y + chunk * kHeadLanes * kChunk);
    }
  }
  for (; chunk < chunks; ++chunk) {
    for (std::int64_t head = 0; head < heads; head += kTileHeads) {
      accumulate_tile<kTileHeads, 1>(piece.packed_values + chunk * kChunkStride, piece.scores + head, count, first, correction + head,
                                     y + (chunk * kHeadLanes + head) * kChunk);
    }
  }
}

void attend(const AttendPiece& piece) {
  const std::int64_t chunks = (piece.key.width + kChunk - 1) / kChunk;
  float correction[kHeadLanes];
  for (std::int64_t done = 0; done < piece.count; done += kBlockKeys) {
    const std::int64_t count = piece.count - done < kBlockKeys ? piece.count - done : kBlockKeys;
    pack_block(piece, piece.first + done, count);
    for (std::int64_t group = 0; group < piece.groups; ++group) {
      float* partial = piece.partials + group * piece.partial_floats;
      const auto score = piece.pairs ? score_block_pairs : score_block;
      score(piece, piece.panels + group * chunks * kChunk * kHeadLanes, count);
      soften_block(piece.scores, count, done == 0, partial, correction);
      accumulate_block(piece, piece.pairs ? kFewHeads : kHeadLanes, count, done == 0, correction, partial + Partial::kY);
    }
  }
}

void merge(float* into, const float* from, std::int64_t value_chunks) {
  float of_into[kHeadLanes];
  float of_from[kHeadLanes];
  for (int lane = 0; lane < kHeadLanes; lane += kLane) {
    const F32 a = load(into + lane);
    const F32 b = load(from + lane);
    const F32 top = max(a, b);
    const F32 factor_a = exp(a - top);
    const F32 factor_b = exp(b - top);
    store(into + lane, top);
    store(into + Partial::kSum + lane, fma(load(into + Partial::kSum + lane), factor_a, load(from + Partial::kSum + lane) * factor_b));
    store(of_into + lane, factor_a);
    store(of_from + lane, factor_b);
  }
  for (std::int64_t row = 0; row < value_chunks * kHeadLanes; ++row) {  // [chunk][head]
    const F32 factor_a = broadcast(of_into[row % kHeadLanes]);
    const F32 factor_b = broadcast(of_from[row % kHeadLanes]);
    for (int i = 0; i < kChunk; i += kLane) {
      float* at = into + Partial::kY + row * kChunk + i;
      store(at, fma(load(at), factor_a, load(from + Partial::kY + row * kChunk + i) * factor_b));
    }
  }
}

void finish(const float* partial, std::int64_t heads, std::int64_t value_width, float* y) {
  for (std::int64_t head = 0; head < heads; ++head) {
    const F32 inverse = broadcast(1.0f / partial[Partial::kSum + head]);
    for (std::int64_t i = 0; i < value_width; i += kLane) {
      const F32 value = load(partial + Partial::kY + (i / kChunk * kHeadLanes + head) * kChunk + i % kChunk) * inverse;
      if (value_width - i >= kLane) {
        store(y + head * value_width + i, value);
      } else {
        store_first(y + head * value_width + i, value, value_width - i);
      }
    }
  }
}

}  // namespace

AttendFunctions attend_functions() { return {.attend = attend, .merge = merge, .finish = finish}; }

}  // namespace reckoner::RECKONER_ISA
