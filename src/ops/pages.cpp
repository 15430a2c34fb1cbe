#include "ops/pages.h"

namespace reckoner {

void read_row(const CacheView& cache, const std::byte* row, std::int64_t first, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = cache.dtype == DType::f32 ? reinterpret_cast<const float*>(row)[first + i]
                                       : bf16_to_f32(reinterpret_cast<const std::uint16_t*>(row)[first + i]);
  }
}

void write_row(const CacheView& cache, std::byte* row, std::int64_t first, std::int64_t count, const float* values) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (cache.dtype == DType::f32) {
      reinterpret_cast<float*>(row)[first + i] = values[i];
    } else {
      reinterpret_cast<std::uint16_t*>(row)[first + i] = f32_to_bf16(values[i]);
    }
  }
}

}  // namespace reckoner
