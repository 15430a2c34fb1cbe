// rope_angles and rope_heads: rotary position embedding.
#pragma once

#include "ops/op.h"

namespace reckoner {

// interleaved: pairs (2i, 2i + 1); half_split: pairs (i, i + width / 2).
enum class RopeLayout : std::uint8_t { interleaved, half_split };

// cosine and sine of position * frequency, once a step for all layers. The product is formed in float, as the references do: at long
// contexts that is part of what the model was trained with.
struct RopeAnglesArgs {
  static constexpr std::string_view kName = "rope_angles";
  Tensor positions;    // [tokens] i32
  Tensor frequencies;  // [pairs] f32, radians a token
  Tensor cosine;       // [tokens, pairs] f32
  Tensor sine;         // [tokens, pairs] f32

  Key key() const { return {}; }
};

// Rotates elements [first, first + 2 * pairs) of every head, in place.
struct RopeHeadsArgs {
  static constexpr std::string_view kName = "rope_heads";
  Tensor x;  // [tokens, heads, head_dim] f32
  std::int64_t first = 0;
  RopeLayout layout = RopeLayout::interleaved;
  Tensor cosine;  // [tokens, pairs] f32
  Tensor sine;    // [tokens, pairs] f32

  Key key() const { return {}; }
};

Status check(const RopeAnglesArgs& args);
Cost cost(const RopeAnglesArgs& args);
void reference(const RopeAnglesArgs& args);

Status check(const RopeHeadsArgs& args);
Cost cost(const RopeHeadsArgs& args);
void reference(const RopeHeadsArgs& args);

// Rotates one vector of 2 * pairs elements in place.
void rotate(float* x, const float* cosine, const float* sine, std::int64_t pairs, RopeLayout layout);

template <ArgsOf<RopeAnglesArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("positions", args.positions);
  v.in("frequencies", args.frequencies);
  v.out("cosine", args.cosine);
  v.out("sine", args.sine);
}

template <ArgsOf<RopeHeadsArgs> A, class V>
void visit(A& args, V&& v) {
  v.inout("x", args.x);
  v.in("cosine", args.cosine);
  v.in("sine", args.sine);
}

}  // namespace reckoner
