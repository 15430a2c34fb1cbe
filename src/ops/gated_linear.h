// gated_linear: two linear layers of one input, and silu of the one times the other: what comes before a feed-forward layer's way down.
#pragma once

#include "ops/op.h"

namespace reckoner {

// y = silu(x gate^T) * (x up^T), with silu(g) = g / (1 + exp(-g)).
struct GatedLinearArgs {
  static constexpr std::string_view kName = "gated_linear";
  static constexpr bool kHasParts = true;
  Tensor x;     // [tokens, in] f32
  Weight gate;  // [out, in]
  Weight up;    // [out, in], of gate's format
  Tensor y;     // [tokens, out] f32
  Precision precision = Precision::exact;

  Key key() const { return {precision, gate.format}; }
};

Status check(const GatedLinearArgs& args);
Cost cost(const GatedLinearArgs& args);
void reference(const GatedLinearArgs& args);

// What y may be off by where gate and up, of the given exact values, are off by the given errors: silu is nowhere steeper than 1.1; its own
// roundings are 16 units in the last place.
double gated_bound(double gate, double gate_error, double up, double up_error);

template <ArgsOf<GatedLinearArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("x", args.x);
  v.weight("up", args.up);
  v.weight("gate", args.gate);
  v.out("y", args.y);
}

}  // namespace reckoner
