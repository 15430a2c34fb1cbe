// Cache rows by position, as plain values: what code that is compiled for one instruction set needs of a CacheView.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/pages.h"

namespace reckoner {

struct CacheRows {
  const std::byte* first = nullptr;  // this kind of row in page 0
  std::int64_t page_bytes = 0;
  std::int64_t row_bytes = 0;
  std::int64_t width = 0;      // elements of a row
  std::int64_t quantised = 0;  // the first of them, as E4M3 with a scale for each kCacheBlock
  std::int64_t scales_offset_bytes = 0;
  std::int64_t plain_offset_bytes = 0;  // of the elements after those
  bool bf16 = false;                    // those elements; otherwise f32

  [[gnu::always_inline]] const std::byte* row(const std::int32_t* pages, std::int64_t position) const {
    return first + pages[position / kPageTokens] * page_bytes + position % kPageTokens * row_bytes;
  }
};

// Elements [first, first + width) of every row.
struct Window {
  std::int64_t first = 0;
  std::int64_t width = 0;
};

inline CacheRows cache_rows(const CacheView& cache) {
  return {.first = cache.base + cache.offset_bytes,
          .page_bytes = cache.page_bytes,
          .row_bytes = cache.row_bytes(),
          .width = cache.row_elements,
          .quantised = cache.quantised(),
          .scales_offset_bytes = cache.scales_offset_bytes(),
          .plain_offset_bytes = cache.plain_offset_bytes(),
          .bf16 = cache.dtype != DType::f32};
}

// All attention kernels multiply a block of cache rows with a panel of heads: the query is laid out [dim][kHeadLanes] (heads along the
// vector), the cache rows as [dim / kChunk][key][kChunk] floats, so that one element of a row is broadcast against 16 heads. Nothing is
// summed across a vector, each (key, head) sum runs over dim in order whatever stands beside it, and any dim works (filled up with zeros).
inline constexpr std::int64_t kHeadLanes = 16;
inline constexpr std::int64_t kChunk = 16;
inline constexpr std::int64_t kBlockKeys = 64;
// One row more than a block has: 4 KiB exactly would put all chunks of a row into one set of the cache.
inline constexpr std::int64_t kChunkStride = (kBlockKeys + 1) * kChunk;

inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
inline std::int64_t chunks_of(std::int64_t elements) { return (elements + kChunk - 1) / kChunk; }
inline std::int64_t head_groups(std::int64_t heads) { return (heads + kHeadLanes - 1) / kHeadLanes; }
// Floats of a packed block of rows, and of the panel of one group of heads.
inline std::int64_t packed_floats(std::int64_t width) { return chunks_of(width) * kChunkStride; }
inline std::int64_t panel_floats(std::int64_t width) { return chunks_of(width) * kChunk * kHeadLanes; }

// A group of at most kFewHeads would leave half of each vector idle. It takes two elements of the query's dim instead: a panel of pairs is
// laid out [dim / 2][kFewHeads][2], and two elements of a row are broadcast against it together.
inline constexpr std::int64_t kFewHeads = kHeadLanes / 2;

// The panel of pairs of the `heads` <= kFewHeads rows of q [heads, width], times factor; zeros elsewhere.
void make_pair_panel(const float* q, std::int64_t heads, std::int64_t width, float factor, float* panel);

// panel[d][head] = q[head][d] * factor for the `heads` <= kHeadLanes rows of q [heads, width]; zeros elsewhere.
void make_panel(const float* q, std::int64_t heads, std::int64_t width, float factor, float* panel);

}  // namespace reckoner
