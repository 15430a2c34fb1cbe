// The weights of a model, in the places where the blocks look for them. Matrices stay in the checkpoint's bytes; vectors (norms,
// biases) are kept as float.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "quant/weight.h"
#include "tensor/tensor.h"

namespace reckoner {

struct MlaWeights {
  Weight q_a;        // [q_lora, hidden]
  Tensor q_a_norm;   // [q_lora] f32
  Weight q_b;        // [heads * (nope + rope), q_lora]
  Weight kv_a;       // [latent + rope, hidden]
  Tensor kv_a_norm;  // [latent] f32
  Weight kv_b;       // [heads * (nope + v), latent]
  Weight o;          // [hidden, heads * v]
};

struct GroupedQueryWeights {
  Weight q;       // [heads * head_dim, hidden]
  Weight k;       // [kv_heads * head_dim, hidden]
  Weight v;       // [kv_heads * head_dim, hidden]
  Weight o;       // [hidden, heads * head_dim]
  Tensor q_bias;  // [heads * head_dim] f32, or empty
  Tensor k_bias;  // [kv_heads * head_dim] f32, or empty
  Tensor v_bias;  // [kv_heads * head_dim] f32, or empty
  Tensor q_norm;  // [head_dim] f32, or empty
  Tensor k_norm;  // [head_dim] f32, or empty
};

struct IndexerWeights {
  Weight wq_b;          // [index_heads * index_dim, q_lora]
  Weight wk;            // [index_dim, hidden]
  Weight weights_proj;  // [index_heads, hidden]
  Tensor k_norm;        // [index_dim] f32
  Tensor k_norm_bias;   // [index_dim] f32
};

struct MlpWeights {
  Weight gate;  // [inner, hidden]
  Weight up;    // [inner, hidden]
  Weight down;  // [hidden, inner]
};

struct MoeWeights {
  Weight router;             // [experts, hidden]
  Tensor router_bias;        // [experts] f32
  std::vector<Weight> gate;  // [experts] of [inner, hidden]
  std::vector<Weight> up;    // [experts] of [inner, hidden]
  std::vector<Weight> down;  // [experts] of [hidden, inner]
  MlpWeights shared;         // rows 0: the model has no shared expert
};

struct LayerWeights {
  Tensor input_norm;            // [hidden] f32
  Tensor post_attention_norm;   // [hidden] f32
  MlaWeights attention;         // of MLA models
  GroupedQueryWeights grouped;  // of the others
  IndexerWeights indexer;       // of layers that own one
  MlpWeights mlp;               // of dense layers
  MoeWeights moe;               // of sparse layers
};

struct ModelWeights {
  Weight embed;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Tensor final_norm;              // [hidden] f32
  Weight lm_head;                 // [vocab, hidden]
  std::vector<Buffer> owners;     // of the vectors above, and of scales that had to be converted
  std::deque<std::string> names;  // own the names of the matrices above; no growth and no move of a deque moves its elements
};

}  // namespace reckoner
