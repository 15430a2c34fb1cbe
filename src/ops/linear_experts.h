// linear_experts: a linear layer whose weight depends on the row: rows sorted by expert, each expert's rows times that expert's weight.
#pragma once

#include <span>

#include "ops/op.h"

namespace reckoner {

// Which rows go to which expert, as `route` writes it. A slot is one (token, chosen expert) pair; slots are sorted by expert, within an
// expert by token.
struct ExpertSlots {
  Tensor begin;   // [experts + 1] i32: slots of expert e are [begin[e], begin[e + 1])
  Tensor tokens;  // [slots] i32: the token of each slot
};

struct LinearExpertsArgs {
  static constexpr std::string_view kName = "linear_experts";
  enum class Rows : std::uint8_t { by_token, by_slot };

  Tensor x;                         // [tokens or slots, in] f32
  std::span<const Weight> experts;  // [experts] of [out, in], all of one format and shape
  ExpertSlots slots;
  Rows rows = Rows::by_token;  // the row of x that a slot reads: its token's (gate, up) or its own (down)
  Tensor y;                    // [slots, out] f32
  Precision precision = Precision::exact;

  Key key() const { return {precision, experts.front().format}; }
};

Status check(const LinearExpertsArgs& args);
Cost cost(const LinearExpertsArgs& args);  // at most: as if each slot had another expert, up to all of them
void reference(const LinearExpertsArgs& args);

template <ArgsOf<LinearExpertsArgs> A, class V>
void visit(A& args, V&& v) {
  v.in("x", args.x);
  v.weights("experts", args.experts);
  v.in("slots.begin", args.slots.begin);
  v.in("slots.tokens", args.slots.tokens);
  v.out("y", args.y);
}

}  // namespace reckoner
