// attend_latent: softmax attention over the latent cache (MLA, absorbed form), over the selected positions or over all of them.
#pragma once

#include "ops/index_select.h"
#include "ops/op.h"
#include "ops/pages.h"

namespace reckoner {

// For the attended positions s of token t (its selection; without one, all s <= its position):
// p = softmax_s( scale * q[t, n] . row[s] );  y[t, n, :] = sum_s p[s] row[s][:latent].  A token that attends to nothing gets zeros.
struct AttendLatentArgs {
  static constexpr std::string_view kName = "attend_latent";
  Tensor q;  // [tokens, heads, latent + rope] f32
  TokenPlaces places;
  CacheView cache;      // rows of latent + rope elements
  Selection selection;  // empty counts: attend to everything up to the token itself
  float scale = 1;
  std::int64_t max_context = 0;  // no position is at or above it
  Tensor y;                      // [tokens, heads, latent] f32

  Key key() const { return {}; }
};

Status check(const AttendLatentArgs& args);
Cost cost(const AttendLatentArgs& args);
void reference(const AttendLatentArgs& args);

template <ArgsOf<AttendLatentArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("q", args.q);
  v.places(args.places);
  v.cache_in("cache", args.cache);
  v.in("selection.counts", args.selection.counts);
  v.in("selection.positions", args.selection.positions);
  v.out("y", args.y);
}

}  // namespace reckoner
