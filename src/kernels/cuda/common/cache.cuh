// Cache rows on the device: ops/pages.h with the page tables as a tensor.
#pragma once

#include "kernels/cuda/common/numbers.cuh"
#include "ops/pages.h"

namespace reckoner::cuda {

struct DeviceCache {
  std::byte* base;
  std::int64_t page_bytes, row_bytes;
  int scales_offset, plain_offset, elements, quantised;
  DType dtype;
  const std::int32_t* table;  // [tokens, table_width]: pages
  std::int64_t table_width;
  const std::int32_t* positions;  // [tokens]
};

inline DeviceCache device_cache(const CacheView& cache, const TokenPlaces& places) {
  CHECK(!places.table.empty(), "a device needs the page tables as a tensor");
  return {.base = cache.base + cache.offset_bytes,
          .page_bytes = cache.page_bytes,
          .row_bytes = cache.row_bytes(),
          .scales_offset = static_cast<int>(cache.scales_offset_bytes()),
          .plain_offset = static_cast<int>(cache.plain_offset_bytes()),
          .elements = static_cast<int>(cache.row_elements),
          .quantised = static_cast<int>(cache.quantised()),
          .dtype = cache.dtype,
          .table = places.table.i32(),
          .table_width = places.table.dim(1),
          .positions = places.positions.i32()};
}

__device__ inline std::byte* cache_row(const DeviceCache& cache, std::int64_t token, std::int64_t position) {
  const std::int64_t page = cache.table[token * cache.table_width + position / kPageTokens];
  return cache.base + page * cache.page_bytes + position % kPageTokens * cache.row_bytes;
}

__device__ inline float cache_element(const DeviceCache& cache, const std::byte* row, int element) {
  if (cache.dtype == DType::f32) return reinterpret_cast<const float*>(row)[element];
  if (element < cache.quantised) {
    const float scale = reinterpret_cast<const float*>(row + cache.scales_offset)[element / static_cast<int>(kCacheBlock)];
    return e4m3_to_float(static_cast<std::uint32_t>(row[element])) * scale;
  }
  return bf16_to_float(reinterpret_cast<const std::uint16_t*>(row + cache.plain_offset)[element - cache.quantised]);
}

// Writes a row from `values` in shared memory; all threads of the block take part.
__device__ inline void store_cache_row(const DeviceCache& cache, std::byte* row, const float* values) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  if (cache.dtype == DType::f32) {
    for (int i = thread; i < cache.elements; i += threads) reinterpret_cast<float*>(row)[i] = values[i];
    return;
  }
  constexpr int kBlock = static_cast<int>(kCacheBlock);
  const int lane = thread % 32;
  for (int first = thread / 32 * kBlock; first < cache.quantised; first += threads / 32 * kBlock) {
    const int end = min(first + kBlock, cache.quantised);
    float largest = 0;
    for (int i = first + lane; i < end; i += 32) {
      if (isfinite(values[i])) largest = fmaxf(largest, fabsf(values[i]));
    }
    largest = warp_max(largest);
    const float scale = largest / 448.0f > 0 ? largest / 448.0f : 1.0f;
    if (lane == 0) reinterpret_cast<float*>(row + cache.scales_offset)[first / kBlock] = scale;
    for (int i = first + lane; i < end; i += 32) {
      const float value = isfinite(values[i]) ? values[i] / scale : __uint_as_float(0x7fc00000u);
      row[i] = static_cast<std::byte>(float_to_e4m3(value));
    }
  }
  auto* halves = reinterpret_cast<std::uint16_t*>(row + cache.plain_offset);
  for (int i = cache.quantised + thread; i < cache.elements; i += threads) halves[i - cache.quantised] = float_to_bf16(values[i]);
}

}  // namespace reckoner::cuda
