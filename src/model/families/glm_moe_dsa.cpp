// GLM-5, 5.1, 5.2, 5.3: MLA with a lightning indexer, sigmoid-routed experts with one shared expert.
#include "model/families/tables.h"

namespace reckoner {
namespace {

constexpr std::string_view kModelTypes[] = {"glm_moe_dsa"};
constexpr std::string_view kRequired[] = {"q_lora_rank",      "kv_lora_rank",        "qk_nope_head_dim", "qk_rope_head_dim",
                                          "v_head_dim",       "index_n_heads",       "index_head_dim",   "index_topk",
                                          "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size"};
constexpr std::span<const WeightRule> kWeights[] = {tables::kTrunk, tables::kMla, tables::kIndexer, tables::kMlp, tables::kMoe};

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
