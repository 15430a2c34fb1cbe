// What attention and index_select share: packing cache rows, and the product of packed rows with a panel of heads.
// The layouts are explained in cache_rows.h.
#pragma once

#include "kernels/cpu/attention/cache_rows.h"
#include "kernels/cpu/simd.h"

namespace reckoner::RECKONER_ISA {

// Vectors that hold kHeadLanes floats, and the keys of a register tile: 16 accumulators of AVX-512's 32 registers, 8 of AVX2's 16.
inline constexpr int kVectors = static_cast<int>(kHeadLanes / F32::kWidth);
inline constexpr int kTileKeys = kVectors == 1 ? 16 : 4;
inline constexpr int kLane = static_cast<int>(F32::kWidth);

// Packs `count` <= kChunk elements from element `first` on, of any mixture of storages. What a row does not keep as codes is zero among
// the codes, and the other way round: the sum of both is the one that is there.
[[gnu::noinline]] inline void pack_part(const CacheRows& rows, const std::byte* row, std::int64_t first, std::int64_t count,
                                        float* packed) {
  std::byte codes[kChunk] = {};
  float scales[kChunk] = {};
  std::uint16_t halves[kChunk] = {};
  float floats[kChunk] = {};
  const std::byte* plain = row + rows.plain_offset_bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t element = first + i;
    if (element < rows.quantised) {
      codes[i] = row[element];
      __builtin_memcpy(scales + i, row + rows.scales_offset_bytes + element / kCacheBlock * 4, sizeof(float));
    } else if (rows.bf16) {
      __builtin_memcpy(halves + i, plain + (element - rows.quantised) * 2, sizeof(std::uint16_t));
    } else {
      __builtin_memcpy(floats + i, plain + element * 4, sizeof(float));
    }
  }
  for (int i = 0; i < kChunk; i += kLane) {
    store(packed + i, load_e4m3(codes + i) * load(scales + i) + load_bf16(halves + i) + load(floats + i));
  }
}

// Writes a window of one row to packed[chunk][.][kChunk] (`packed` stands at the row's place in chunk 0), filled up with zeros.
RECKONER_INLINE void pack_row(const CacheRows& rows, const Window& window, const std::byte* row, float* packed) {
  std::int64_t element = window.first;
  std::int64_t chunks = window.width / kChunk;  // whole ones, from `element` on
  if (element < rows.quantised) {
    const bool aligned = element % kChunk == 0;  // then no chunk reaches over two blocks
    for (; chunks > 0 && element < rows.quantised; --chunks, element += kChunk, packed += kChunkStride) {
      if (!aligned || element + kChunk > rows.quantised) {
        pack_part(rows, row, element, kChunk, packed);
        continue;
      }
      float scale;
      __builtin_memcpy(&scale, row + rows.scales_offset_bytes + element / kCacheBlock * 4, sizeof(scale));
      for (int i = 0; i < kChunk; i += kLane) store(packed + i, load_e4m3(row + element + i) * broadcast(scale));
    }
  }
  const std::byte* plain = row + rows.plain_offset_bytes;
  if (rows.bf16) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(plain);
    for (; chunks > 0; --chunks, element += kChunk, packed += kChunkStride) {
      for (int i = 0; i < kChunk; i += kLane) store(packed + i, load_bf16(halves + (element - rows.quantised) + i));
    }
  } else {
    const auto* floats = reinterpret_cast<const float*>(plain);
    for (; chunks > 0; --chunks, element += kChunk, packed += kChunkStride) {
      for (int i = 0; i < kChunk; i += kLane) store(packed + i, load(floats + element + i));
    }
  }
  if (window.width % kChunk != 0) pack_part(rows, row, element, window.width % kChunk, packed);
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

// The same with a panel of pairs: acc[key][.] holds a sum over even d and one over odd d for each head, side by side.
RECKONER_INLINE void multiply_tile_pairs(const float* packed, const float* panel, std::int64_t chunks, F32 (&acc)[kTileKeys][kVectors]) {
#pragma GCC unroll 16
  for (int key = 0; key < kTileKeys; ++key) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[key][v] = zero();
  }
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk, packed += kChunkStride, panel += kChunk / 2 * kHeadLanes) {
#pragma GCC unroll 4
    for (int d = 0; d < kChunk / 2; ++d) {
      F32 heads[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) heads[v] = load(panel + d * kHeadLanes + v * kLane);
#pragma GCC unroll 16
      for (int key = 0; key < kTileKeys; ++key) {
        const F32 elements = broadcast_pair(packed + key * kChunk + 2 * d);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[key][v] = fma(elements, heads[v], acc[key][v]);
      }
    }
  }
}

}  // namespace reckoner::RECKONER_ISA
