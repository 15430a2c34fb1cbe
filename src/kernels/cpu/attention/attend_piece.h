// What the driver of attention asks of an instruction set: the attention of some heads over some keys, unnormalised.
#pragma once

#include "kernels/cpu/attention/cache_rows.h"

namespace reckoner {

// The attention of one group of kHeadLanes heads over a piece of the keys, as floats:
//   largest [16]  the largest score;  sum [16]  sum of exp(score - largest);  y [value chunk][16 heads][kChunk]  weighted sum of values
// Lanes and elements beyond the heads and the value hold nothing of meaning.
struct Partial {
  static std::int64_t floats(std::int64_t value_width) { return 2 * kHeadLanes + chunks_of(value_width) * kHeadLanes * kChunk; }
  static constexpr std::int64_t kSum = kHeadLanes;
  static constexpr std::int64_t kY = 2 * kHeadLanes;
};

struct AttendPiece {
  CacheRows keys;
  Window key;
  CacheRows values;  // without `first`: a value is the beginning of its key
  Window value;
  const std::int32_t* pages = nullptr;      // of the token's sequence
  const std::int32_t* positions = nullptr;  // of the attended keys; nullptr: key i stands at position i
  std::int64_t first = 0;                   // keys [first, first + count), count >= 1
  std::int64_t count = 0;
  std::int64_t groups = 0;          // of heads
  bool pairs = false;               // groups of at most kFewHeads: panels are panels of pairs
  const float* panels = nullptr;    // [groups] panels of the scaled query, panel_floats(key.width) each
  float* packed_keys = nullptr;     // scratch: packed_floats(key.width)
  float* packed_values = nullptr;   // scratch: packed_floats(value.width), or packed_keys
  float* scores = nullptr;          // scratch: [kBlockKeys][kHeadLanes]
  float* partials = nullptr;        // [groups] of partial_floats, written
  std::int64_t partial_floats = 0;  // Partial::floats(value.width)
};

struct AttendFunctions {
  void (*attend)(const AttendPiece& piece);
  // into = what `into` and `from` say together; `from` covers the keys after those of `into`.
  void (*merge)(float* into, const float* from, std::int64_t value_chunks);
  // y[head][:value_width] = normalised, for the first `heads` of a group.
  void (*finish)(const float* partial, std::int64_t heads, std::int64_t value_width, float* y);
};

namespace avx2 {
AttendFunctions attend_functions();
}
namespace avx512 {
AttendFunctions attend_functions();
}

}  // namespace reckoner
