// linear: y = x w^T.
#pragma once

#include "ops/op.h"

namespace reckoner {

struct LinearArgs {
  static constexpr std::string_view kName = "linear";
  Tensor x;  // [tokens, in]   f32
  Weight w;  // [out, in]      any format
  Tensor y;  // [tokens, out]  f32
  Precision precision = Precision::exact;

  Key key() const { return {precision, w.format}; }
};

Status check(const LinearArgs& args);
Cost cost(const LinearArgs& args);
void reference(const LinearArgs& args);

// Bound on |kernel - exact| / sum_k |w_k x_k| for a dot product of `in` terms, derived: float summation in any order loses at most
// in * 2^-24 of the sum of magnitudes (first order; 2x for the rounding of each product and of the scale), and with BF16 activations
// each term is off by 2^-8 more (BF16 keeps 8 significant bits).
double linear_tolerance(Precision precision, std::int64_t in);

template <ArgsOf<LinearArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("x", args.x);
  v.weight("w", args.w);
  v.out("y", args.y);
}

}  // namespace reckoner
