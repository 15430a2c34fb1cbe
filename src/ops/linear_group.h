// linear_group: several linear layers of one input, or of its norm.
#pragma once

#include <array>

#include "ops/linear.h"
#include "ops/op.h"
#include "ops/rms_norm.h"

namespace reckoner {

// One of them: y = x' w^T.
struct LinearPart {
  Weight w;  // [out, in]
  Tensor y;  // [tokens, out] f32
  Precision precision = Precision::exact;
};

// x' = x, or where there is a norm x / rms(x) * norm. Of `parts` the first `count` are meant.
struct LinearGroupArgs {
  static constexpr std::string_view kName = "linear_group";
  static constexpr bool kHasParts = true;
  static constexpr int kMostParts = 4;
  static constexpr std::int64_t kMostTokens = 256;  // with more, nothing is gained over one after the other
  Tensor x;                                         // [tokens, in] f32
  Tensor norm;                                      // [in] f32, or empty
  float epsilon = 0;
  int count = 1;
  std::array<LinearPart, kMostParts> parts;

  Key key() const { return {parts[0].precision, parts[0].w.format}; }
};

Status check(const LinearGroupArgs& args);
Cost cost(const LinearGroupArgs& args);
void reference(const LinearGroupArgs& args);

template <ArgsOf<LinearGroupArgs> A, class V>
void visit(A& args, V&& v) {
  static constexpr std::array<std::array<const char*, 2>, LinearGroupArgs::kMostParts> kNames = {
      {{"w", "y"}, {"w1", "y1"}, {"w2", "y2"}, {"w3", "y3"}}};
  v.in("x", args.x);
  v.in("norm", args.norm);
  // The first one last: whoever names an op by its weight takes that.
  for (auto i = static_cast<std::size_t>(args.count); i-- > 0;) {
    v.weight(kNames[i][0], args.parts[i].w);
    v.out(kNames[i][1], args.parts[i].y);
  }
}
// As linear_tolerance() of a part; a norm's sum of squares has only positive terms, and its root is off by half of what that is off by.
double linear_group_tolerance(const LinearGroupArgs& args, int part);

// The part whose output a name stands for.
int part_of(std::string_view output);

// The ops that it is made of: the norm, whose output is `normed`, and each part, of `x`.
RmsNormArgs norm_of(const LinearGroupArgs& args, const Tensor& normed);
LinearArgs linear_of(const LinearGroupArgs& args, int part, const Tensor& x);

}  // namespace reckoner
