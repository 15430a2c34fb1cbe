#include "model/families/list.h"

#include <fmt/format.h>

#include <algorithm>

namespace reckoner {

std::span<const Family* const> families() {
  static const Family* const list[] = {&kGlmMoeDsa, &kDeepseekV32, &kDeepseekV3, &kKimiK25, &kGlm4Moe, &kGlm4MoeLite};
  return list;
}

Result<const Family*> find_family(const ModelConfig& config) {
  std::string supported;
  for (const Family* family : families()) {
    for (const std::string_view type : family->model_types) {
      if (type == config.model_type) {
        TRY(require(config, family->required_fields));
        if (family->check_config != nullptr) TRY(family->check_config(config));
        return family;
      }
      supported += fmt::format("{}{}", supported.empty() ? "" : ", ", type);
    }
  }
  return Error{fmt::format("{}: field 'model_type': \"{}\" is not a model family that Reckoner knows (it knows: {})", config.where,
                           config.model_type, supported),
               "use a model of one of these families"};
}

std::string published_name(const Family& family, const WeightRule& rule, WeightPlace place) {
  return std::string(family.prefix) +
         fmt::format(fmt::runtime(rule.name), fmt::arg("layer", place.layer), fmt::arg("expert", place.expert));
}

std::string layer_prefix(const Family& family, std::int64_t layer) { return fmt::format("{}model.layers.{}.", family.prefix, layer); }

std::int64_t count_places(const WeightRule& rule, const ModelConfig& config) {
  const std::int64_t sparse = std::count(config.mlp_kinds.begin(), config.mlp_kinds.end(), MlpKind::sparse);
  switch (rule.repeat) {
    case Repeat::once:
      return 1;
    case Repeat::layer:
      return config.num_hidden_layers;
    case Repeat::indexer_layer:
      return std::count(config.indexer_kinds.begin(), config.indexer_kinds.end(), IndexerKind::full);
    case Repeat::dense_layer:
      return config.num_hidden_layers - sparse;
    case Repeat::sparse_layer:
      return sparse;
    case Repeat::expert:
      return sparse * config.n_routed_experts;
  }
  return 0;
}

}  // namespace reckoner
