// The rules that families put together: names, shapes and places of the published tensors of each part of a model.
#pragma once

#include "model/families/list.h"

namespace reckoner::tables {

using Config = const ModelConfig&;
using Weights = ModelWeights&;
using Place = WeightPlace;

inline Shape hidden_vector(Config c) { return {c.hidden_size}; }
inline Shape vocab_matrix(Config c) { return {c.vocab_size, c.hidden_size}; }
inline Shape index_vector(Config c) { return {c.index_head_dim}; }
inline Shape head_vector(Config c) { return {c.head_dim}; }
inline Shape query_vector(Config c) { return {c.num_attention_heads * c.head_dim}; }
inline Shape key_vector(Config c) { return {c.num_key_value_heads * c.head_dim}; }
inline Shape query_matrix(Config c) { return {c.num_attention_heads * c.head_dim, c.hidden_size}; }
inline Shape key_matrix(Config c) { return {c.num_key_value_heads * c.head_dim, c.hidden_size}; }
inline Shape dense_in(Config c) { return {c.intermediate_size, c.hidden_size}; }
inline Shape dense_out(Config c) { return {c.hidden_size, c.intermediate_size}; }
inline Shape expert_in(Config c) { return {c.moe_intermediate_size, c.hidden_size}; }
inline Shape expert_out(Config c) { return {c.hidden_size, c.moe_intermediate_size}; }
inline Shape shared_in(Config c) { return {c.n_shared_experts * c.moe_intermediate_size, c.hidden_size}; }
inline Shape shared_out(Config c) { return {c.hidden_size, c.n_shared_experts * c.moe_intermediate_size}; }

inline bool is_untied(Config c) { return !c.tie_word_embeddings; }
inline bool has_bias(Config c) { return c.attention_bias; }
inline bool has_head_norms(Config c) { return c.use_qk_norm; }
inline bool has_shared_experts(Config c) { return c.n_shared_experts > 0; }

inline LayerWeights& at(Weights w, Place p) { return w.layers[p.layer]; }

// clang-format off
// Embedding, output head, and the norms between the blocks.
inline constexpr WeightRule kTrunk[] = {
    {.name = "model.embed_tokens", .role = WeightRole::embedding, .shape = vocab_matrix, .matrix = [](Weights w, Place) -> Weight& { return w.embed; }},
    {.name = "model.norm.weight", .role = WeightRole::norm, .shape = hidden_vector, .vector = [](Weights w, Place) -> Tensor& { return w.final_norm; }},
    {.name = "lm_head", .role = WeightRole::head, .split = Split::vocabulary, .when = is_untied, .shape = vocab_matrix, .matrix = [](Weights w, Place) -> Weight& { return w.lm_head; }},
    {.name = "model.layers.{layer}.input_layernorm.weight", .role = WeightRole::norm, .repeat = Repeat::layer, .shape = hidden_vector,
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).input_norm; }},
    {.name = "model.layers.{layer}.post_attention_layernorm.weight", .role = WeightRole::norm, .repeat = Repeat::layer, .shape = hidden_vector,
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).post_attention_norm; }},
};

// Multi-head latent attention.
inline constexpr WeightRule kMla[] = {
    {.name = "model.layers.{layer}.self_attn.q_a_proj", .role = WeightRole::attention, .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.q_lora_rank, c.hidden_size}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).attention.q_a; }},
    {.name = "model.layers.{layer}.self_attn.q_a_layernorm.weight", .role = WeightRole::norm, .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.q_lora_rank}; },
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).attention.q_a_norm; }},
    {.name = "model.layers.{layer}.self_attn.q_b_proj", .role = WeightRole::attention, .split = Split::heads, .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim), c.q_lora_rank}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).attention.q_b; }},
    {.name = "model.layers.{layer}.self_attn.kv_a_proj_with_mqa", .role = WeightRole::attention, .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.kv_lora_rank + c.qk_rope_head_dim, c.hidden_size}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).attention.kv_a; }},
    {.name = "model.layers.{layer}.self_attn.kv_a_layernorm.weight", .role = WeightRole::norm, .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.kv_lora_rank}; },
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).attention.kv_a_norm; }},
    {.name = "model.layers.{layer}.self_attn.kv_b_proj", .role = WeightRole::attention, .split = Split::heads, .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).attention.kv_b; }},
    {.name = "model.layers.{layer}.self_attn.o_proj", .role = WeightRole::attention, .split = Split::head_columns, .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.hidden_size, c.num_attention_heads * c.v_head_dim}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).attention.o; }},
};

// The lightning indexer of sparse attention.
inline constexpr WeightRule kIndexer[] = {
    {.name = "model.layers.{layer}.self_attn.indexer.wq_b", .role = WeightRole::indexer, .repeat = Repeat::indexer_layer,
     .shape = [](Config c) -> Shape { return {c.index_n_heads * c.index_head_dim, c.q_lora_rank}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).indexer.wq_b; }},
    {.name = "model.layers.{layer}.self_attn.indexer.wk", .role = WeightRole::indexer, .repeat = Repeat::indexer_layer,
     .shape = [](Config c) -> Shape { return {c.index_head_dim, c.hidden_size}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).indexer.wk; }},
    {.name = "model.layers.{layer}.self_attn.indexer.weights_proj", .role = WeightRole::index_weights, .repeat = Repeat::indexer_layer,
     .shape = [](Config c) -> Shape { return {c.index_n_heads, c.hidden_size}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).indexer.weights_proj; }},
    {.name = "model.layers.{layer}.self_attn.indexer.k_norm.weight", .role = WeightRole::norm, .repeat = Repeat::indexer_layer, .shape = index_vector,
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).indexer.k_norm; }},
    {.name = "model.layers.{layer}.self_attn.indexer.k_norm.bias", .role = WeightRole::norm, .repeat = Repeat::indexer_layer, .shape = index_vector,
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).indexer.k_norm_bias; }},
};

// Grouped-query attention.
inline constexpr WeightRule kGroupedQuery[] = {
    {.name = "model.layers.{layer}.self_attn.q_proj", .role = WeightRole::attention, .split = Split::heads, .repeat = Repeat::layer, .shape = query_matrix,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).grouped.q; }},
    {.name = "model.layers.{layer}.self_attn.k_proj", .role = WeightRole::attention, .split = Split::key_heads, .repeat = Repeat::layer, .shape = key_matrix,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).grouped.k; }},
    {.name = "model.layers.{layer}.self_attn.v_proj", .role = WeightRole::attention, .split = Split::key_heads, .repeat = Repeat::layer, .shape = key_matrix,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).grouped.v; }},
    {.name = "model.layers.{layer}.self_attn.o_proj", .role = WeightRole::attention, .split = Split::head_columns, .repeat = Repeat::layer,
     .shape = [](Config c) -> Shape { return {c.hidden_size, c.num_attention_heads * c.head_dim}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).grouped.o; }},
    {.name = "model.layers.{layer}.self_attn.q_proj.bias", .role = WeightRole::attention, .split = Split::heads, .repeat = Repeat::layer, .when = has_bias,
     .shape = query_vector, .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).grouped.q_bias; }},
    {.name = "model.layers.{layer}.self_attn.k_proj.bias", .role = WeightRole::attention, .split = Split::key_heads, .repeat = Repeat::layer, .when = has_bias,
     .shape = key_vector, .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).grouped.k_bias; }},
    {.name = "model.layers.{layer}.self_attn.v_proj.bias", .role = WeightRole::attention, .split = Split::key_heads, .repeat = Repeat::layer, .when = has_bias,
     .shape = key_vector, .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).grouped.v_bias; }},
    {.name = "model.layers.{layer}.self_attn.q_norm.weight", .role = WeightRole::norm, .repeat = Repeat::layer, .when = has_head_norms,
     .shape = head_vector, .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).grouped.q_norm; }},
    {.name = "model.layers.{layer}.self_attn.k_norm.weight", .role = WeightRole::norm, .repeat = Repeat::layer, .when = has_head_norms,
     .shape = head_vector, .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).grouped.k_norm; }},
};

// The MLP of dense layers.
inline constexpr WeightRule kMlp[] = {
    {.name = "model.layers.{layer}.mlp.gate_proj", .role = WeightRole::mlp, .split = Split::rows, .repeat = Repeat::dense_layer, .shape = dense_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).mlp.gate; }},
    {.name = "model.layers.{layer}.mlp.up_proj", .role = WeightRole::mlp, .split = Split::rows, .repeat = Repeat::dense_layer, .shape = dense_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).mlp.up; }},
    {.name = "model.layers.{layer}.mlp.down_proj", .role = WeightRole::mlp, .split = Split::columns, .repeat = Repeat::dense_layer, .shape = dense_out,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).mlp.down; }},
};

// Router, routed experts and shared experts.
inline constexpr WeightRule kMoe[] = {
    {.name = "model.layers.{layer}.mlp.gate", .role = WeightRole::router, .repeat = Repeat::sparse_layer,
     .shape = [](Config c) -> Shape { return {c.n_routed_experts, c.hidden_size}; },
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.router; }},
    {.name = "model.layers.{layer}.mlp.gate.e_score_correction_bias", .role = WeightRole::router, .repeat = Repeat::sparse_layer,
     .shape = [](Config c) -> Shape { return {c.n_routed_experts}; },
     .vector = [](Weights w, Place p) -> Tensor& { return at(w, p).moe.router_bias; }},
    {.name = "model.layers.{layer}.mlp.experts.{expert}.gate_proj", .role = WeightRole::expert, .split = Split::rows, .repeat = Repeat::expert, .shape = expert_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.gate[p.expert]; }},
    {.name = "model.layers.{layer}.mlp.experts.{expert}.up_proj", .role = WeightRole::expert, .split = Split::rows, .repeat = Repeat::expert, .shape = expert_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.up[p.expert]; }},
    {.name = "model.layers.{layer}.mlp.experts.{expert}.down_proj", .role = WeightRole::expert, .split = Split::columns, .repeat = Repeat::expert, .shape = expert_out,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.down[p.expert]; }},
    {.name = "model.layers.{layer}.mlp.shared_experts.gate_proj", .role = WeightRole::shared_expert, .split = Split::rows, .repeat = Repeat::sparse_layer,
     .when = has_shared_experts, .shape = shared_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.shared.gate; }},
    {.name = "model.layers.{layer}.mlp.shared_experts.up_proj", .role = WeightRole::shared_expert, .split = Split::rows, .repeat = Repeat::sparse_layer,
     .when = has_shared_experts, .shape = shared_in,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.shared.up; }},
    {.name = "model.layers.{layer}.mlp.shared_experts.down_proj", .role = WeightRole::shared_expert, .split = Split::columns, .repeat = Repeat::sparse_layer,
     .when = has_shared_experts, .shape = shared_out,
     .matrix = [](Weights w, Place p) -> Weight& { return at(w, p).moe.shared.down; }},
};
// clang-format on

}  // namespace reckoner::tables
