// What attend_latent and index_select share: packing cache rows, and the product of packed rows with a panel of heads.
// The layouts are explained in cache_rows.h.
#pragma once

#include "kernels/cpu/attention/cache_rows.h"
#include "kernels/cpu/simd.h"

namespace reckoner::RECKONER_ISA {

// Vectors that hold kHeadLanes floats, and the keys of a register tile: 16 accumulators of AVX-512's 32 registers, 8 of AVX2's 16.
inline constexpr int kVectors = static_cast<int>(kHeadLanes / F32::kWidth);
inline constexpr int kTileKeys = kVectors == 1 ? 16 : 4;
inline constexpr int kLane = static_cast<int>(F32::kWidth);

// Writes one row to packed[chunk][.][kChunk] (`packed` stands at the row's place in chunk 0), filled up with zeros.
RECKONER_INLINE void pack_row(const CacheRows& rows, const std::byte* row, float* packed) {
  const auto* floats = reinterpret_cast<const float*>(row);
  const auto* halves = reinterpret_cast<const std::uint16_t*>(row);
  const std::int64_t whole = rows.width / kChunk;
  if (rows.bf16) {
    for (std::int64_t chunk = 0; chunk < whole; ++chunk) {
      for (int i = 0; i < kChunk; i += kLane) store(packed + chunk * kChunkStride + i, load_bf16(halves + chunk * kChunk + i));
    }
  } else {
    for (std::int64_t chunk = 0; chunk < whole; ++chunk) {
      for (int i = 0; i < kChunk; i += kLane) store(packed + chunk * kChunkStride + i, load(floats + chunk * kChunk + i));
    }
  }
  if (rows.width % kChunk == 0) return;
  float* out = packed + whole * kChunkStride;
  const auto rest = static_cast<std::size_t>(rows.width % kChunk);
  float part[kChunk] = {};
  std::uint16_t half_part[kChunk] = {};
  __builtin_memcpy(part, floats + whole * kChunk, rows.bf16 ? 0 : rest * sizeof(float));
  __builtin_memcpy(half_part, halves + whole * kChunk, rows.bf16 ? rest * sizeof(std::uint16_t) : 0);
  for (int i = 0; i < kChunk; i += kLane) store(out + i, rows.bf16 ? load_bf16(half_part + i) : load(part + i));
}

// Rows [count, next multiple of the tile) become zeros, so that a tile never reads what nobody wrote.
RECKONER_INLINE void pack_padding(std::int64_t width, std::int64_t count, float* packed) {
  for (std::int64_t key = count; key % kTileKeys != 0; ++key) {
    for (std::int64_t chunk = 0; chunk < (width + kChunk - 1) / kChunk; ++chunk) {
      for (int i = 0; i < kChunk; i += kLane) store(packed + chunk * kChunkStride + key * kChunk + i, zero());
    }
  }
}

// acc[key][.] = for the kTileKeys rows at `packed`: sum over d of row[key][d] * panel[d][.]
RECKONER_INLINE void multiply_tile(const float* packed, const float* panel, std::int64_t chunks, F32 (&acc)[kTileKeys][kVectors]) {
#pragma GCC unroll 16
  for (int key = 0; key < kTileKeys; ++key) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[key][v] = zero();
  }
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk, packed += kChunkStride, panel += kChunk * kHeadLanes) {
#pragma GCC unroll 4
    for (int d = 0; d < kChunk; ++d) {
      F32 heads[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) heads[v] = load(panel + d * kHeadLanes + v * kLane);
#pragma GCC unroll 16
      for (int key = 0; key < kTileKeys; ++key) {
        const F32 element = broadcast(packed[key * kChunk + d]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[key][v] = fma(element, heads[v], acc[key][v]);
      }
    }
  }
}

}  // namespace reckoner::RECKONER_ISA
