// experts_combine: the way down of a mixture of experts: what the routed and the shared experts return, added up for each token.
#pragma once

#include <span>

#include "ops/linear.h"
#include "ops/linear_experts.h"
#include "ops/op.h"
#include "ops/route.h"

namespace reckoner {

// y[t] = shared_x[t] shared^T + sum_k weights[t, k] * (x[s] experts[e]^T) with s = slot_of[t, k] and e its expert; in the order of k.
struct ExpertsCombineArgs {
  static constexpr std::string_view kName = "experts_combine";
  static constexpr bool kHasParts = true;
  Tensor x;                         // [slots, in] f32
  std::span<const Weight> experts;  // [experts] of [out, in], all of one format and shape
  ExpertSlots slots;
  Tensor weights;   // [tokens, top_k] f32
  Tensor slot_of;   // [tokens, top_k] i32
  Tensor shared_x;  // [tokens, shared in] f32
  Weight shared;    // [out, shared in], of any format
  Tensor y;         // [tokens, out] f32
  Precision precision = Precision::exact;

  Key key() const { return {precision, experts.front().format}; }
};

Status check(const ExpertsCombineArgs& args);
Cost cost(const ExpertsCombineArgs& args);  // at most: as if each slot had another expert, up to all of them
void reference(const ExpertsCombineArgs& args);

template <ArgsOf<ExpertsCombineArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("x", args.x);
  v.in("shared_x", args.shared_x);
  v.weight("shared", args.shared);
  v.weights("experts", args.experts);
  v.in("slots.begin", args.slots.begin);
  v.in("slots.tokens", args.slots.tokens);
  v.in("weights", args.weights);
  v.in("slot_of", args.slot_of);
  v.out("y", args.y);
}

// The ops that it is made of: the shared expert's layer into y, the routed ones' into `rows` [slots, out], and their sum with y.
LinearArgs shared_of(const ExpertsCombineArgs& args);
LinearExpertsArgs experts_of(const ExpertsCombineArgs& args, const Tensor& rows);
CombineArgs combine_of(const ExpertsCombineArgs& args, const Tensor& rows);

}  // namespace reckoner
