// GLM-5, 5.1, 5.2, 5.3: MLA with a lightning indexer, sigmoid-routed experts with one shared expert.
#include "model/families/list.h"

namespace reckoner {
namespace {

constexpr std::string_view kModelTypes[] = {"glm_moe_dsa"};

constexpr std::string_view kRequired[] = {"q_lora_rank",      "kv_lora_rank",        "qk_nope_head_dim", "qk_rope_head_dim",
                                          "v_head_dim",       "index_n_heads",       "index_head_dim",   "index_topk",
                                          "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size"};

using Config = const ModelConfig&;
using Weights = ModelWeights&;
using Place = WeightPlace;

Shape hidden_vector(Config c) { return {c.hidden_size}; }
Shape vocab_matrix(Config c) { return {c.vocab_size, c.hidden_size}; }
Shape index_vector(Config c) { return {c.index_head_dim}; }
Shape dense_in(Config c) { return {c.intermediate_size, c.hidden_size}; }
Shape dense_out(Config c) { return {c.hidden_size, c.intermediate_size}; }
Shape expert_in(Config c) { return {c.moe_intermediate_size, c.hidden_size}; }
Shape expert_out(Config c) { return {c.hidden_size, c.moe_intermediate_size}; }
Shape shared_in(Config c) { return {c.n_shared_experts * c.moe_intermediate_size, c.hidden_size}; }
Shape shared_out(Config c) { return {c.hidden_size, c.n_shared_experts * c.moe_intermediate_size}; }

LayerWeights& at(Weights w, Place p) { return w.layers[p.layer]; }

// clang-format off
constexpr WeightRule kWeights[] = {
    {.name = "model.embed_tokens", .shape = vocab_matrix, .matrix = [](Weights w, Place) -> Weight& { return w.embed; }},
    {.name = "model.norm.weight", .shape = hidden_vector, .vector = [](Weights w, Place) -> Tensor& { return w.final_norm; }},
    {.name = "lm_head", .shape = vocab_matrix, .matrix = [](Weights w, Place) -> Weight& { return w.lm_head; }},

    {.name = "model.layers.{layer}.input_layernorm.weight", .repeat = Repeat::layer, .shape = hidden_vector,
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).input_norm; }},
    {.name = "model.layers.{layer}.post_attention_layernorm.weight", .repeat = Repeat::layer, .shape = hidden_vector,
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).post_attention_norm; }},

    {.name = "model.layers.{layer}.self_attn.q_a_proj", .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.q_lora_rank, c.hidden_size}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).attention.q_a; }},
    {.name = "model.layers.{layer}.self_attn.q_a_layernorm.weight", .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.q_lora_rank}; },
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).attention.q_a_norm; }},
    {.name = "model.layers.{layer}.self_attn.q_b_proj", .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim), c.q_lora_rank}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).attention.q_b; }},
    {.name = "model.layers.{layer}.self_attn.kv_a_proj_with_mqa", .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.kv_lora_rank + c.qk_rope_head_dim, c.hidden_size}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).attention.kv_a; }},
    {.name = "model.layers.{layer}.self_attn.kv_a_layernorm.weight", .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.kv_lora_rank}; },
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).attention.kv_a_norm; }},
    {.name = "model.layers.{layer}.self_attn.kv_b_proj", .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).attention.kv_b; }},
    {.name = "model.layers.{layer}.self_attn.o_proj", .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.hidden_size, c.num_attention_heads * c.v_head_dim}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).attention.o; }},

    {.name = "model.layers.{layer}.self_attn.indexer.wq_b", .repeat = Repeat::indexer_layer,
     .shape = [](Config c) -> Shape { return {c.index_n_heads * c.index_head_dim, c.q_lora_rank}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).indexer.wq_b; }},
    {.name = "model.layers.{layer}.self_attn.indexer.wk", .repeat = Repeat::indexer_layer,
     .shape = [](Config c) -> Shape { return {c.index_head_dim, c.hidden_size}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).indexer.wk; }},
    {.name = "model.layers.{layer}.self_attn.indexer.weights_proj", .repeat = Repeat::indexer_layer,
     .shape = [](Config c) -> Shape { return {c.index_n_heads, c.hidden_size}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).indexer.weights_proj; }},
    {.name = "model.layers.{layer}.self_attn.indexer.k_norm.weight", .repeat = Repeat::indexer_layer, .shape = index_vector,
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).indexer.k_norm; }},
    {.name = "model.layers.{layer}.self_attn.indexer.k_norm.bias", .repeat = Repeat::indexer_layer, .shape = index_vector,
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).indexer.k_norm_bias; }},

    {.name = "model.layers.{layer}.mlp.gate_proj", .repeat = Repeat::dense_layer, .shape = dense_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).mlp.gate; }},
    {.name = "model.layers.{layer}.mlp.up_proj", .repeat = Repeat::dense_layer, .shape = dense_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).mlp.up; }},
    {.name = "model.layers.{layer}.mlp.down_proj", .repeat = Repeat::dense_layer, .shape = dense_out,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).mlp.down; }},

    {.name = "model.layers.{layer}.mlp.gate", .repeat = Repeat::sparse_layer,
     .shape = [](Config c) -> Shape { return {c.n_routed_experts, c.hidden_size}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.router; }},
    {.name = "model.layers.{layer}.mlp.gate.e_score_correction_bias", .repeat = Repeat::sparse_layer,
     .shape = [](Config c) -> Shape { return {c.n_routed_experts}; },
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).moe.router_bias; }},
    {.name = "model.layers.{layer}.mlp.experts.{expert}.gate_proj", .repeat = Repeat::expert, .shape = expert_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.gate[p.expert]; }},
    {.name = "model.layers.{layer}.mlp.experts.{expert}.up_proj", .repeat = Repeat::expert, .shape = expert_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.up[p.expert]; }},
    {.name = "model.layers.{layer}.mlp.experts.{expert}.down_proj", .repeat = Repeat::expert, .shape = expert_out,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.down[p.expert]; }},
    {.name = "model.layers.{layer}.mlp.shared_experts.gate_proj", .repeat = Repeat::sparse_layer, .shape = shared_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.shared.gate; }},
    {.name = "model.layers.{layer}.mlp.shared_experts.up_proj", .repeat = Repeat::sparse_layer, .shape = shared_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.shared.up; }},
    {.name = "model.layers.{layer}.mlp.shared_experts.down_proj", .repeat = Repeat::sparse_layer, .shape = shared_out,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.shared.down; }},
};
// clang-format on

Status check_config(const ModelConfig& config) {
  if (config.rope.is_yarn()) {
    return Error{
        config.where + ": field 'rope_parameters.rope_type': expected \"default\" for glm_moe_dsa, found \"" + config.rope.type + "\"",
        "no published GLM-5 uses YaRN; check where this config comes from"};
  }
  if (config.n_shared_experts < 1) {
    return Error{config.where + ": field 'n_shared_experts': expected at least 1 for glm_moe_dsa, found 0",
                 "check where this config comes from"};
  }
  return {};
}

}  // namespace

const Family kGlmMoeDsa = {.model_types = kModelTypes, .required_fields = kRequired, .check_config = check_config, .weights = kWeights};

}  // namespace reckoner
