#include "model/blocks/blocks.h"

namespace reckoner {

Tensor mlp(Forward& f, const MlpWeights& w, const Tensor& x) {
  const Tensor y = f.scratch.f32({f.tokens(), w.down.rows});
  const Arena::Scope scope(f.scratch);
  const Tensor gate = f.linear(x, w.gate);  // [tokens, inner]
  const Tensor up = f.linear(x, w.up);      // [tokens, inner]
  f.ops(SiluMulArgs{.gate = gate, .up = up, .y = gate});
  f.ops(LinearArgs{.x = gate, .w = w.down, .y = y, .precision = f.precision});
  return y;
}

Tensor moe(Forward& f, const MoeWeights& w, std::int64_t layer, const Tensor& x) {
  const ModelConfig& c = f.config;
  const std::int64_t tokens = f.tokens();
  const std::int64_t top_k = c.num_experts_per_tok;
  f.enter("shared_experts");
  const Tensor y = w.shared.down.rows > 0 ? mlp(f, w.shared, x) : Tensor{};  // [tokens, hidden]
  const Tensor out = w.shared.down.rows > 0 ? y : f.scratch.f32({tokens, c.hidden_size});
  const Arena::Scope scope(f.scratch);

  f.enter("experts");
  // Routing decides, so it is always done in float.
  const Tensor logits = f.linear(x, w.router, Precision::exact);  // [tokens, experts]
  const Tensor weights = f.scratch.f32({tokens, top_k});
  const Tensor slot_of = f.scratch.i32({tokens, top_k});
  const ExpertSlots slots{.begin = f.scratch.i32({c.n_routed_experts + 1}), .tokens = f.scratch.i32({tokens * top_k})};
  f.tap("router_logits", layer, logits);  // on the processor a tap may put other logits there
  f.ops(RouteArgs{.logits = logits,
                  .bias = w.router_bias,
                  .groups = c.n_group,
                  .top_groups = c.topk_group,
                  .normalise = c.norm_topk_prob ? RouteArgs::Weights::normalised : RouteArgs::Weights::as_they_are,
                  .scale = static_cast<float>(c.routed_scaling_factor),
                  .weights = weights,
                  .slot_of = slot_of,
                  .slots = slots});

  const auto experts = [&](const Tensor& rows, std::span<const Weight> of, LinearExpertsArgs::Rows from) {
    const Tensor result = f.scratch.f32({tokens * top_k, of.front().rows});
    f.ops(LinearExpertsArgs{.x = rows, .experts = of, .slots = slots, .rows = from, .y = result, .precision = f.precision});
    return result;
  };
  const Tensor gate = experts(x, w.gate, LinearExpertsArgs::Rows::by_token);  // [slots, inner]
  {
    const Arena::Scope up_scope(f.scratch);  // as wide as `gate`, and done with before `down`, the widest of all
    const Tensor up = experts(x, w.up, LinearExpertsArgs::Rows::by_token);  // [slots, inner]
    f.ops(SiluMulArgs{.gate = gate, .up = up, .y = gate});
  }
  const Tensor down = experts(gate, w.down, LinearExpertsArgs::Rows::by_slot);  // [slots, hidden]
  f.ops(CombineArgs{.rows = down, .weights = weights, .slot_of = slot_of, .shared = y, .y = out});
  return out;
}

}  // namespace reckoner
