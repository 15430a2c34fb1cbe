#include "kernels/cpu/attention/cache_rows.h"

#include <algorithm>

namespace reckoner {

void make_panel(const float* q, std::int64_t heads, std::int64_t width, float factor, float* panel) {
  // A chunk of 16 x 16 at a time: the panel as a whole does not fit the first-level cache, and is written across.
  for (std::int64_t chunk = 0; chunk < chunks_of(width); ++chunk) {
    float* out = panel + chunk * kChunk * kHeadLanes;
    for (std::int64_t head = 0; head < kHeadLanes; ++head) {
      for (std::int64_t i = 0; i < kChunk; ++i) {
        const std::int64_t d = chunk * kChunk + i;
        out[i * kHeadLanes + head] = head < heads && d < width ? q[head * width + d] * factor : 0.0f;
      }
    }
  }
}

void make_pair_panel(const float* q, std::int64_t heads, std::int64_t width, float factor, float* panel) {
  std::fill_n(panel, panel_floats(width) / 2, 0.0f);
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t d = 0; d < width; ++d) panel[d / 2 * kHeadLanes + 2 * head + d % 2] = q[head * width + d] * factor;
  }
}

}  // namespace reckoner
