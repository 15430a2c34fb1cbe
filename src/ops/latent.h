// latent_query and latent_value: the two halves of kv_b_proj, absorbed into the query and applied to the attended latent (MLA).
// kv_b_proj is [heads * (nope + v), latent]; of head n the first `nope` rows are W_UK, the other `v` rows W_UV.
#pragma once

#include "ops/op.h"

namespace reckoner {

// y[t, n, :latent] = q[t, n, :nope] W_UK[n];  y[t, n, latent:] = q[t, n, nope:]  (already rotated)
struct LatentQueryArgs {
  static constexpr std::string_view kName = "latent_query";
  Tensor q;     // [tokens, heads, nope + rope] f32
  Weight kv_b;  // [heads * (nope + v), latent]
  std::int64_t nope = 0;
  Tensor y;  // [tokens, heads, latent + rope] f32
  Precision precision = Precision::exact;

  Key key() const { return {precision, kv_b.format}; }
};

// y[t, n, :] = W_UV[n] x[t, n, :]
struct LatentValueArgs {
  static constexpr std::string_view kName = "latent_value";
  Tensor x;     // [tokens, heads, latent] f32
  Weight kv_b;  // [heads * (nope + v), latent]
  std::int64_t nope = 0;
  Tensor y;  // [tokens, heads, v] f32
  Precision precision = Precision::exact;

  Key key() const { return {precision, kv_b.format}; }
};

Status check(const LatentQueryArgs& args);
Cost cost(const LatentQueryArgs& args);
void reference(const LatentQueryArgs& args);

Status check(const LatentValueArgs& args);
Cost cost(const LatentValueArgs& args);
void reference(const LatentValueArgs& args);

template <ArgsOf<LatentQueryArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("q", args.q);
  v.weight("kv_b", args.kv_b);
  v.out("y", args.y);
}

template <ArgsOf<LatentValueArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("x", args.x);
  v.weight("kv_b", args.kv_b);
  v.out("y", args.y);
}

}  // namespace reckoner
