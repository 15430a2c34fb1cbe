#include "model/blocks/blocks.h"

namespace reckoner {

namespace {

// silu(gate x) * up x: [tokens, inner], in new scratch memory.
Tensor gated(Forward& f, const MlpWeights& w, const Tensor& x) {
  const GatedLinearArgs both{.x = x, .gate = w.gate, .up = w.up, .y = {}, .precision = f.precision};
  if (f.is_few() && w.gate.format == w.up.format && f.ops.serves<GatedLinearArgs>(both.key())) {
    GatedLinearArgs args = both;
    args.y = f.scratch.f32({f.tokens(), w.gate.rows});
    f.ops(args);
    return args.y;
  }
  const Tensor gate = f.linear(x, w.gate);  // [tokens, inner]
  const Tensor up = f.linear(x, w.up);      // [tokens, inner]
  f.ops(SiluMulArgs{.gate = gate, .up = up, .y = gate});
  return gate;
}

// The same with the experts that each token chose: [slots, inner], in new scratch memory.
Tensor gated_by_experts(Forward& f, const MoeWeights& w, const ExpertSlots& slots, const Tensor& x) {
  const Shape shape{slots.tokens.dim(0), w.gate.front().rows};
  const GatedExpertsArgs both{.x = x, .gate = w.gate, .up = w.up, .slots = slots, .y = f.scratch.f32(shape), .precision = f.precision};
  if (f.is_few() && w.gate.front().format == w.up.front().format && f.ops.serves<GatedExpertsArgs>(both.key())) {
    f.ops(both);
    return both.y;
  }
  const Arena::Scope up_scope(f.scratch);  // as wide as `gate`, and done with before the way down, the widest of all
  const Tensor up = f.scratch.f32(shape);
  f.ops(gate_of(both, both.y));
  f.ops(up_of(both, up));
  f.ops(SiluMulArgs{.gate = both.y, .up = up, .y = both.y});
  return both.y;
}

// y [tokens, hidden] = down( silu(gate x) * up x )
void feed_forward(Forward& f, const MlpWeights& w, const Tensor& x, const Tensor& y) {
  const Arena::Scope scope(f.scratch);
  f.ops(LinearArgs{.x = gated(f, w, x), .w = w.down, .y = y, .precision = f.precision});
}

struct Routed {
  Tensor weights;  // [tokens, top_k]
  Tensor slot_of;  // [tokens, top_k]
  ExpertSlots slots;
};

Routed routed(Forward& f, const MoeWeights& w, std::int64_t layer, const Tensor& x) {
  const ModelConfig& c = f.config;
  const Shape chosen{f.tokens(), c.num_experts_per_tok};
  // Routing decides, so it is always done in float.
  const Tensor logits = f.linear(x, w.router, Precision::exact);  // [tokens, experts]
  const Routed routed{.weights = f.scratch.f32(chosen),
                      .slot_of = f.scratch.i32(chosen),
                      .slots = {.begin = f.scratch.i32({c.n_routed_experts + 1}), .tokens = f.scratch.i32({chosen.elements()})}};
  f.tap("router_logits", layer, logits);  // on the processor a tap may put other logits there
  f.ops(RouteArgs{.logits = logits,
                  .bias = w.router_bias,
                  .groups = c.n_group,
                  .top_groups = c.topk_group,
                  .normalise = c.norm_topk_prob ? RouteArgs::Weights::normalised : RouteArgs::Weights::as_they_are,
                  .scale = static_cast<float>(c.routed_scaling_factor),
                  .weights = routed.weights,
                  .slot_of = routed.slot_of,
                  .slots = routed.slots});
  return routed;
}

}  // namespace

Tensor mlp(Forward& f, const MlpWeights& w, const Tensor& x) {
  const Tensor y = f.scratch.f32({f.tokens(), w.down.rows});
  feed_forward(f, w, x, y);
  return y;
}

Tensor moe(Forward& f, const MoeWeights& w, std::int64_t layer, const Tensor& x) {
  const std::int64_t tokens = f.tokens();
  const bool has_shared = w.shared.down.rows > 0;
  const Tensor y = f.scratch.f32({tokens, f.config.hidden_size});
  const Arena::Scope scope(f.scratch);
  // The shared expert's way down with the others' in one go, or by itself.
  const bool at_once = has_shared && f.is_few() && f.ops.serves<ExpertsCombineArgs>({f.precision, w.down.front().format});

  f.enter("shared_experts");
  const Tensor shared_x = at_once ? gated(f, w.shared, x) : Tensor{};  // [tokens, shared inner]
  if (has_shared && !at_once) feed_forward(f, w.shared, x, y);

  f.enter("experts");
  const Routed to = routed(f, w, layer, x);
  const Tensor inner = gated_by_experts(f, w, to.slots, x);  // [slots, inner]
  if (at_once) {
    f.ops(ExpertsCombineArgs{.x = inner,
                             .experts = w.down,
                             .slots = to.slots,
                             .weights = to.weights,
                             .slot_of = to.slot_of,
                             .shared_x = shared_x,
                             .shared = w.shared.down,
                             .y = y,
                             .precision = f.precision});
    return y;
  }
  const Tensor down = f.scratch.f32({to.slots.tokens.dim(0), y.dim(1)});  // [slots, hidden]
  f.ops(LinearExpertsArgs{
      .x = inner, .experts = w.down, .slots = to.slots, .rows = LinearExpertsArgs::Rows::by_slot, .y = down, .precision = f.precision});
  f.ops(CombineArgs{.rows = down, .weights = to.weights, .slot_of = to.slot_of, .shared = has_shared ? y : Tensor{}, .y = y});
  return y;
}

}  // namespace reckoner
