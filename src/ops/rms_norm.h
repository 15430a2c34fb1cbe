// rms_norm: y = x / rms(x) * weight, after adding the residual branch; reports rows that are not finite.
#pragma once

#include "ops/op.h"

namespace reckoner {

// Per row of a step, the first place whose output was not finite. A norm's sum of squares is non-finite exactly when its input is (or
// overflows), so looking costs nothing.
struct Guard {
  static constexpr std::int32_t kClean = -1;
  Tensor first_bad;             // [tokens] i32: kClean, or the `place` that was first found bad
  Tensor rms;                   // [tokens] f32: root mean square of the norm's input, or empty
  std::int32_t place = kClean;  // what produced the input of this norm; the model gives the numbers their meaning
};

struct RmsNormArgs {
  static constexpr std::string_view kName = "rms_norm";
  Tensor x;       // [tokens, width] f32; when `add` is given x += add is written back
  Tensor add;     // [tokens, width] f32, or empty
  Tensor weight;  // [width] f32
  float epsilon = 0;
  Tensor y;     // [tokens, width] f32; may be x itself when `add` is empty
  Guard guard;  // first_bad empty: nobody looks

  Key key() const { return {}; }
};

Status check(const RmsNormArgs& args);
Cost cost(const RmsNormArgs& args);
void reference(const RmsNormArgs& args);

template <ArgsOf<RmsNormArgs> A, class V>
void visit(A& args, V&& v) {
  v.inout("x", args.x);
  v.in("add", args.add);
  v.in("weight", args.weight);
  v.out("y", args.y);
  v.inout("guard.first_bad", args.guard.first_bad);
  v.out("guard.rms", args.guard.rms);
}

}  // namespace reckoner
