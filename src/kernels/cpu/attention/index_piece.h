// What index_select's driver asks of an instruction set.
//
// Scores are kept as images: integers that compare like the floats they stand for, with -0 as +0 and NaN as minus infinity. So every NaN
// score ranks with the lowest, and the order is total: what is selected is defined, and in range, for any input.
#pragma once

#include "kernels/cpu/attention/cache_rows.h"

namespace reckoner {

// A token whose scores are wanted.
struct IndexToken {
  std::int64_t context = 0;        // positions to score
  const float* panels = nullptr;   // [groups] panels of the query
  const float* weights = nullptr;  // [groups][kHeadLanes], scaled; zeros beyond the heads
  std::int32_t* images = nullptr;  // [context rounded up to kBlockKeys], written
};

// Scores of tokens of one sequence at positions [first, first + count); `first` is a multiple of kBlockKeys.
struct IndexPiece {
  CacheRows rows;
  const std::int32_t* pages = nullptr;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t groups = 0;  // of heads
  const IndexToken* tokens = nullptr;
  std::int64_t token_count = 0;
  float* packed = nullptr;  // scratch: packed_floats(rows.width)
};

// Counters of the radix select. Several histograms side by side: elements that follow each other often fall into the same bin, and
// must not wait for each other.
inline constexpr std::int64_t kHistograms = 4;
inline constexpr std::int64_t kBins = 2048;

struct IndexFunctions {
  void (*score)(const IndexPiece& piece);
  // Writes the indices of the top_k largest of images [count], in ascending order, ties to the lower index. 0 < top_k < count.
  // `histogram` is scratch: [kHistograms][kBins].
  void (*select)(const std::int32_t* images, std::int64_t count, std::int64_t top_k, std::int32_t* indices, std::uint32_t* histogram);
};

namespace avx2 {
IndexFunctions index_functions();
}
namespace avx512 {
IndexFunctions index_functions();
}

}  // namespace reckoner
