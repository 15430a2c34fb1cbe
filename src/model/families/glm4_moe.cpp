// GLM-4.5, 4.6, 4.7: grouped-query attention with biases, norms of queries and keys, partial rotary embedding.
#include "model/families/tables.h"

namespace reckoner {
namespace {

constexpr std::string_view kModelTypes[] = {"glm4_moe"};
constexpr std::string_view kRequired[] = {"head_dim", "n_routed_experts", "num_experts_per_tok", "n_shared_experts",
                                          "moe_intermediate_size"};
constexpr std::span<const WeightRule> kWeights[] = {tables::kTrunk, tables::kGroupedQuery, tables::kMlp, tables::kMoe};

}  // namespace

const Family kGlm4Moe = {.model_types = kModelTypes, .required_fields = kRequired, .weights = kWeights};

}  // namespace reckoner
