// DeepSeek-V3, R1, V3.1 and Kimi-K2: MLA over all tokens, experts routed in groups.
#include "model/families/tables.h"

namespace reckoner {
namespace {

constexpr std::string_view kModelTypes[] = {"deepseek_v3", "kimi_k2"};
constexpr std::string_view kRequired[] = {"q_lora_rank",         "kv_lora_rank",     "qk_nope_head_dim",
                                          "qk_rope_head_dim",    "v_head_dim",       "n_routed_experts",
                                          "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size"};
constexpr std::span<const WeightRule> kWeights[] = {tables::kTrunk, tables::kMla, tables::kMlp, tables::kMoe};

}  // namespace

const Family kDeepseekV3 = {.model_types = kModelTypes, .required_fields = kRequired, .weights = kWeights};

}  // namespace reckoner
