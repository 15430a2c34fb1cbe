// What attend_latent's driver asks of an instruction set: the attention of some heads over some keys, unnormalised.
#pragma once

#include "kernels/cpu/attention/cache_rows.h"

namespace reckoner {

// The attention of one group of kHeadLanes heads over a piece of the keys, as floats:
//   largest [16]  the largest score;  sum [16]  sum of exp(score - largest);  y [latent chunk][16 heads][kChunk]  weighted sum of the rows
// Lanes and elements beyond the heads and the latent hold nothing of meaning.
struct Partial {
  static std::int64_t floats(std::int64_t latent) { return 2 * kHeadLanes + chunks_of(latent) * kHeadLanes * kChunk; }
  static constexpr std::int64_t kSum = kHeadLanes;
  static constexpr std::int64_t kY = 2 * kHeadLanes;
};

struct AttendPiece {
  CacheRows rows;
  const std::int32_t* pages = nullptr;      // of the token's sequence
  const std::int32_t* positions = nullptr;  // of the attended keys; nullptr: key i stands at position i
  std::int64_t first = 0;                   // keys [first, first + count), count >= 1
  std::int64_t count = 0;
  std::int64_t groups = 0;          // of heads
  std::int64_t latent_chunks = 0;   // of the output
  const float* panels = nullptr;    // [groups] panels of the scaled query
  float* packed = nullptr;          // scratch: packed_floats(rows.width)
  float* scores = nullptr;          // scratch: [kBlockKeys][kHeadLanes]
  float* partials = nullptr;        // [groups] of partial_floats, written
  std::int64_t partial_floats = 0;  // Partial::floats(latent)
};

struct AttendFunctions {
  void (*attend)(const AttendPiece& piece);
  // into = what `into` and `from` say together; `from` covers the keys after those of `into`.
  void (*merge)(float* into, const float* from, std::int64_t latent_chunks);
  // y[head][:latent] = normalised, for the first `heads` of a group.
  void (*finish)(const float* partial, std::int64_t heads, std::int64_t latent, float* y);
};

namespace avx2 {
AttendFunctions attend_functions();
}
namespace avx512 {
AttendFunctions attend_functions();
}

}  // namespace reckoner
