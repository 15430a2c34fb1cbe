// index_select: the lightning indexer: scores every earlier token, keeps the best top_k (DeepSeek Sparse Attention).
#pragma once

#include "ops/op.h"
#include "ops/pages.h"

namespace reckoner {

// The tokens that a token may attend to: positions in ascending order, the first counts[t] of row t are valid.
struct Selection {
  Tensor counts;     // [tokens] i32
  Tensor positions;  // [tokens, top_k] i32
  std::int64_t top_k() const { return positions.dim(1); }
};

// score[t, s] = sum_h weights[t, h] * scale * relu(q[t, h] . key[s]) for s <= position of t; the top_k largest are selected, of equal
// scores the earlier position. A token at position < top_k selects all positions up to its own, without scoring.
struct IndexSelectArgs {
  static constexpr std::string_view kName = "index_select";
  Tensor q;        // [tokens, index_heads, index_dim] f32, rotated
  Tensor weights;  // [tokens, index_heads] f32
  float scale = 1;
  TokenPlaces places;
  CacheView keys;                // rows of index_dim elements
  std::int64_t max_context = 0;  // no position is at or above it; bounds the workspace
  Selection selection;           // written

  Key key() const { return {}; }
};

Status check(const IndexSelectArgs& args);
Cost cost(const IndexSelectArgs& args);  // at max_context
void reference(const IndexSelectArgs& args);

// Marks the top_k largest of scores[0, count), ties to the lower index, and writes their indices in ascending order. A NaN
// ranks as minus infinity, so that a bad row selects positions that exist.
void select_top_k(const float* scores, std::int64_t count, std::int64_t top_k, std::int32_t* indices);

template <ArgsOf<IndexSelectArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("q", args.q);
  v.in("weights", args.weights);
  v.places(args.places);
  v.cache_in("keys", args.keys);
  v.out("selection.counts", args.selection.counts);
  v.out("selection.positions", args.selection.positions);
}

}  // namespace reckoner
