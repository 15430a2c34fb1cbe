// GLM-4.7-Flash: MLA over all tokens, no YaRN.
#include "model/families/tables.h"

namespace reckoner {
namespace {

constexpr std::string_view kModelTypes[] = {"glm4_moe_lite"};
constexpr std::string_view kRequired[] = {"q_lora_rank",         "kv_lora_rank",     "qk_nope_head_dim",
                                          "qk_rope_head_dim",    "v_head_dim",       "n_routed_experts",
                                          "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size"};
constexpr std::span<const WeightRule> kWeights[] = {tables::kTrunk, tables::kMla, tables::kMlp, tables::kMoe};

}  // namespace

const Family kGlm4MoeLite = {.model_types = kModelTypes, .required_fields = kRequired, .weights = kWeights};

}  // namespace reckoner
