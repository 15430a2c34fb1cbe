// Kimi-K2.5 and K2.6: the text model of a multimodal one, which is a Kimi-K2.
#include "model/families/tables.h"

namespace reckoner {
namespace {

constexpr std::string_view kModelTypes[] = {"kimi_k25"};
constexpr std::string_view kRequired[] = {"q_lora_rank",         "kv_lora_rank",     "qk_nope_head_dim",
                                          "qk_rope_head_dim",    "v_head_dim",       "n_routed_experts",
                                          "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size"};
constexpr std::span<const WeightRule> kWeights[] = {tables::kTrunk, tables::kMla, tables::kMlp, tables::kMoe};
constexpr std::string_view kSkipped[] = {"vision_tower.", "mm_projector.", "multi_modal_projector."};

}  // namespace

const Family kKimiK25 = {
    .model_types = kModelTypes, .required_fields = kRequired, .weights = kWeights, .prefix = "language_model.", .skipped = kSkipped};

}  // namespace reckoner
