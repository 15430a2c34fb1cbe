#include "ops/pages.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace reckoner {

Status expect_cache(std::string_view op, const CacheView& cache, std::int64_t width, std::string_view what) {
  TRY(expect_that(cache.row_elements == width, op, what));
  TRY(expect_that(cache.dtype == DType::f32 || cache.dtype == DType::bf16 || cache.dtype == DType::f8_e4m3, op,
                  "a cache holds F32, BF16 or F8_E4M3"));
  return expect_that(cache.quantised() >= 0 && cache.quantised() <= width, op, "a cache row has fewer elements than it should quantise");
}

namespace {

float scale_of(const CacheView& cache, const std::byte* row, std::int64_t element) {
  float scale = 0;
  std::memcpy(&scale, row + cache.scales_offset_bytes() + element / kCacheBlock * 4, sizeof(scale));
  return scale;
}

void write_block(const float* values, std::int64_t count, std::byte* codes, std::byte* scale_at) {
  float largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) largest = std::max(largest, std::fabs(values[i]));
  }
  const float scale = largest / 448.0f > 0 ? largest / 448.0f : 1.0f;
  std::memcpy(scale_at, &scale, sizeof(scale));
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = std::isfinite(values[i]) ? values[i] / scale : std::numeric_limits<float>::quiet_NaN();
    codes[i] = static_cast<std::byte>(f32_to_e4m3(value));
  }
}

}  // namespace

void read_row(const CacheView& cache, const std::byte* row, std::int64_t first, std::int64_t count, float* out) {
  const auto* halves = reinterpret_cast<const std::uint16_t*>(row + cache.plain_offset_bytes());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t element = first + i;
    if (cache.dtype == DType::f32) {
      out[i] = reinterpret_cast<const float*>(row)[element];
    } else if (element < cache.quantised()) {
      out[i] = e4m3_to_f32(static_cast<std::uint8_t>(row[element])) * scale_of(cache, row, element);
    } else {
      out[i] = bf16_to_f32(halves[element - cache.quantised()]);
    }
  }
}

void write_row(const CacheView& cache, std::byte* row, const float* values) {
  if (cache.dtype == DType::f32) {
    std::memcpy(row, values, static_cast<std::size_t>(cache.row_bytes()));
    return;
  }
  const std::int64_t quantised = cache.quantised();
  for (std::int64_t first = 0; first < quantised; first += kCacheBlock) {
    write_block(values + first, std::min(kCacheBlock, quantised - first), row + first,
                row + cache.scales_offset_bytes() + first / kCacheBlock * 4);
  }
  auto* halves = reinterpret_cast<std::uint16_t*>(row + cache.plain_offset_bytes());
  for (std::int64_t i = quantised; i < cache.row_elements; ++i) halves[i - quantised] = f32_to_bf16(values[i]);
}

}  // namespace reckoner
