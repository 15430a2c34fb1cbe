// attend_grouped: softmax attention with fewer key and value heads than query heads (GQA), over all earlier tokens.
#pragma once

#include "ops/op.h"
#include "ops/pages.h"

namespace reckoner {

// Query head n reads key and value head g = n / (heads / kv_heads): elements [g * head_dim, (g + 1) * head_dim) of the cache rows.
// p = softmax_s( scale * q[t, n] . key[s, g] ) over all s <= position of t;  y[t, n, :] = sum_s p[s] value[s, g, :].
struct AttendGroupedArgs {
  static constexpr std::string_view kName = "attend_grouped";
  Tensor q;  // [tokens, heads, head_dim] f32, rotated
  TokenPlaces places;
  CacheView keys;    // rows of kv_heads * head_dim elements, rotated
  CacheView values;  // the same
  std::int64_t kv_heads = 0;
  float scale = 1;
  std::int64_t max_context = 0;  // no position is at or above it
  Tensor y;                      // [tokens, heads, head_dim] f32

  Key key() const { return {}; }
};

Status check(const AttendGroupedArgs& args);
Cost cost(const AttendGroupedArgs& args);
void reference(const AttendGroupedArgs& args);

template <ArgsOf<AttendGroupedArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("q", args.q);
  v.places(args.places);
  v.cache_in("keys", args.keys);
  v.cache_in("values", args.values);
  v.out("y", args.y);
}

}  // namespace reckoner
