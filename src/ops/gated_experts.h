// gated_experts: gated_linear with weights that depend on the row: those of the experts that a token chose.
#pragma once

#include <span>

#include "ops/linear_experts.h"
#include "ops/op.h"

namespace reckoner {

// y[slot] = silu(x[token] gate[e]^T) * (x[token] up[e]^T), where e is the slot's expert and token its token.
struct GatedExpertsArgs {
  static constexpr std::string_view kName = "gated_experts";
  static constexpr bool kHasParts = true;
  Tensor x;                      // [tokens, in] f32
  std::span<const Weight> gate;  // [experts] of [out, in], all of one format and shape
  std::span<const Weight> up;    // [experts] of [out, in], of gate's
  ExpertSlots slots;
  Tensor y;  // [slots, out] f32
  Precision precision = Precision::exact;

  Key key() const { return {precision, gate.front().format}; }
};

Status check(const GatedExpertsArgs& args);
Cost cost(const GatedExpertsArgs& args);  // at most: as if each slot had another expert, up to all of them
void reference(const GatedExpertsArgs& args);

template <ArgsOf<GatedExpertsArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("x", args.x);
  v.weights("up", args.up);
  v.weights("gate", args.gate);
  v.in("slots.begin", args.slots.begin);
  v.in("slots.tokens", args.slots.tokens);
  v.out("y", args.y);
}

// The two of linear_experts that it is made of; their outputs are `gate` and `up`.
LinearExpertsArgs gate_of(const GatedExpertsArgs& args, const Tensor& gate);
LinearExpertsArgs up_of(const GatedExpertsArgs& args, const Tensor& up);

}  // namespace reckoner
