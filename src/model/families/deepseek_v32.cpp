// DeepSeek-V3.2: DeepSeek-V3 with a lightning indexer, whose rotary embedding is half-split.
#include "model/families/tables.h"

namespace reckoner {
namespace {

constexpr std::string_view kModelTypes[] = {"deepseek_v32"};
constexpr std::string_view kRequired[] = {"q_lora_rank",      "kv_lora_rank",        "qk_nope_head_dim", "qk_rope_head_dim",
                                          "v_head_dim",       "index_n_heads",       "index_head_dim",   "index_topk",
                                          "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size"};
constexpr std::span<const WeightRule> kWeights[] = {tables::kTrunk, tables::kMla, tables::kIndexer, tables::kMlp, tables::kMoe};

}  // namespace

const Family kDeepseekV32 = {.model_types = kModelTypes, .required_fields = kRequired, .weights = kWeights};

}  // namespace reckoner
