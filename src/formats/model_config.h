// ModelConfig: config.json (and generation_config.json) as typed, range-checked values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/generation_config.h"
#include "formats/settings.h"

namespace reckoner {

enum class MlpKind : std::uint8_t { dense, sparse };
enum class IndexerKind : std::uint8_t { full, shared };  // shared: reuses the selection of the nearest full layer before it

// Rotary position embedding. Published as `rope_parameters` (transformers 5) or as top-level `rope_theta` and `rope_scaling` (4).
struct RopeConfig {
  double theta = 0;                  // rope_theta, base of the frequencies; always given
  std::string type = "default";      // rope_type or type: "default", "yarn" or "deepseek_yarn"
  double partial_rotary_factor = 1;  // share of head_dim that is rotated; grouped-query attention only
  // YaRN only:
  double factor = 1;                                  // context extension factor
  double beta_fast = 32;                              // rotations within the original context above which a dimension is kept as it is
  double beta_slow = 1;                               // rotations below which it is interpolated by `factor`
  double mscale = 1;                                  // attention scale parameters
  double mscale_all_dim = 0;                          //
  std::int64_t original_max_position_embeddings = 0;  // tokens of context before extension

  bool interleave = false;          // rope_interleave: pairs (2i, 2i+1), otherwise (i, i + dim/2)
  bool indexer_interleave = false;  // indexer_rope_interleave: the same for the index queries and keys

  bool is_yarn() const { return type != "default"; }
};

// Member names are the published names unless a comment says otherwise. 0 (or false, or empty): not in the file; a family states what
// it needs with require().
struct ModelConfig {
  std::string where;  // path of config.json, for messages

  std::string model_type;                  // "glm_moe_dsa"
  std::vector<std::string> architectures;  // "GlmMoeDsaForCausalLM"

  std::int64_t hidden_size = 0;               // width of the residual stream; always given
  std::int64_t num_hidden_layers = 0;         // decoder layers without MTP layers; always given
  std::int64_t vocab_size = 0;                // rows of the embedding; always given
  std::int64_t intermediate_size = 0;         // inner width of a dense MLP; given if any layer is dense
  std::int64_t max_position_embeddings = 0;   // tokens; always given
  double rms_norm_eps = 0;                    // always given
  bool tie_word_embeddings = false;           // the output head is the embedding
  std::int64_t num_nextn_predict_layers = 0;  // MTP layers, stored after the decoder layers; promised, not necessarily in the checkpoint

  // Attention.
  std::int64_t num_attention_heads = 0;  // always given
  std::int64_t num_key_value_heads = 0;  // num_attention_heads when absent
  bool attention_bias = false;           // projections have a bias; grouped-query attention only
  bool use_qk_norm = false;              // queries and keys are normalised head by head; grouped-query attention only
  std::int64_t head_dim = 0;             // grouped-query attention only: with MLA the published value is misleading and ignored (0 here)

  // Multi-head latent attention (MLA). A query or key head is qk_nope_head_dim + qk_rope_head_dim wide.
  std::int64_t q_lora_rank = 0;       // width of the query latent
  std::int64_t kv_lora_rank = 0;      // width of the key/value latent; what the cache holds, with the rope part
  std::int64_t qk_nope_head_dim = 0;  // part of a head without position
  std::int64_t qk_rope_head_dim = 0;  // rotated part of a head; even
  std::int64_t v_head_dim = 0;        // width of a value head

  // Indexer of sparse attention (DSA).
  std::int64_t index_n_heads = 0;
  std::int64_t index_head_dim = 0;
  std::int64_t index_topk = 0;                 // tokens that a query attends to
  std::vector<IndexerKind> indexer_kinds;      // one a decoder layer, the first is full; empty without index_topk
  bool index_share_for_mtp_iteration = false;  // later draft steps reuse the selection of the first

  // Mixture of experts.
  std::int64_t n_routed_experts = 0;
  std::int64_t num_experts_per_tok = 0;    // experts that a token is routed to
  std::int64_t n_shared_experts = 0;       // experts that every token passes, stored as one MLP
  std::int64_t moe_intermediate_size = 0;  // inner width of one expert
  std::int64_t n_group = 1;                // groups of experts; routing picks groups first
  std::int64_t topk_group = 1;             // groups kept
  bool norm_topk_prob = false;             // routing weights are divided by their sum
  double routed_scaling_factor = 1;        // and then multiplied by this
  std::string scoring_func = "sigmoid";    // the only one supported
  std::string topk_method = "noaux_tc";    // the only one supported: selection by score plus correction bias
  std::vector<MlpKind> mlp_kinds;          // one a decoder layer

  RopeConfig rope;

  // eos_token_id: any of these ends a sequence. generation_config.json wins over config.json.
  std::vector<std::int64_t> eos_token_ids;
  std::optional<std::int64_t> bos_token_id;
  std::optional<std::int64_t> pad_token_id;
  GenerationConfig generation;

  std::vector<Setting> settings;           // what took effect where files can disagree or a default was taken
  std::vector<Setting> ignored;            // fields that are not used by design, with the reason as note
  std::vector<std::string> unread_fields;  // fields of config.json that nothing here reads, sorted
  std::vector<std::string> given_fields;   // fields of config.json that are present and not null, sorted

  bool is_mla() const { return kv_lora_rank > 0; }
  // Dimensions of a head that are rotated; even.
  std::int64_t rotary_dim() const {
    return is_mla() ? qk_rope_head_dim : static_cast<std::int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor);
  }
  bool is_sparse_attention() const { return index_topk > 0; }
  bool is_moe() const { return n_routed_experts > 0; }
};

// Reads config.json and, if present, generation_config.json of a model folder. Errors name the field: malformed JSON, missing, wrong
// type, out of range, contradicting another field, or a value that is not supported (says which are).
Result<ModelConfig> read_model_config(const std::filesystem::path& folder);
// The same from parsed documents.
Result<ModelConfig> parse_model_config(const JsonNode& config, const std::optional<JsonNode>& generation_config);

// Error unless each of these fields is given in config.json; names the first one missing and the model type that needs it.
Status require(const ModelConfig& config, std::span<const std::string_view> fields);

}  // namespace reckoner
