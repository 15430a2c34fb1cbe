// route and combine: which experts a token goes to, and the weighted sum of what they return.
#pragma once

#include "ops/linear_experts.h"
#include "ops/op.h"

namespace reckoner {

// p = sigmoid(logits). Experts are chosen by p + bias: with groups, first the top_groups groups whose two best sum highest, the others
// being out; then the top_k best, ties to the lower expert. Weights are p (without bias), divided by their sum when normalise, times scale.
struct RouteArgs {
  static constexpr std::string_view kName = "route";
  enum class Weights : std::uint8_t { as_they_are, normalised };

  Tensor logits;  // [tokens, experts] f32
  Tensor bias;    // [experts] f32
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  Weights normalise = Weights::normalised;
  float scale = 1;
  Tensor weights;     // [tokens, top_k] f32, of the chosen experts in ascending order of expert
  Tensor slot_of;     // [tokens, top_k] i32: the slot of each
  ExpertSlots slots;  // written: begin [experts + 1], tokens [tokens * top_k]

  Key key() const { return {}; }
};

// y[t] = shared[t] + sum_k weights[t, k] * rows[slot_of[t, k]], in the order of k.
struct CombineArgs {
  static constexpr std::string_view kName = "combine";
  Tensor rows;     // [slots, width] f32
  Tensor weights;  // [tokens, top_k] f32
  Tensor slot_of;  // [tokens, top_k] i32
  Tensor shared;   // [tokens, width] f32, or empty
  Tensor y;        // [tokens, width] f32; may be `shared`

  Key key() const { return {}; }
};

Status check(const RouteArgs& args);
Cost cost(const RouteArgs& args);
void reference(const RouteArgs& args);

Status check(const CombineArgs& args);
Cost cost(const CombineArgs& args);
void reference(const CombineArgs& args);

template <ArgsOf<RouteArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("logits", args.logits);
  v.in("bias", args.bias);
  v.out("weights", args.weights);
  v.out("slot_of", args.slot_of);
  v.out("slots.begin", args.slots.begin);
  v.out("slots.tokens", args.slots.tokens);
}

template <ArgsOf<CombineArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("rows", args.rows);
  v.in("weights", args.weights);
  v.in("slot_of", args.slot_of);
  v.in("shared", args.shared);
  v.out("y", args.y);
}

}  // namespace reckoner
