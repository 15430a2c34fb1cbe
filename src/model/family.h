// Family: what is particular to a model type, as data: what its config must say and where its published tensors go. No maths.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/model_config.h"
#include "model/weights.h"

namespace reckoner {

// Which layers (and experts) a rule is repeated for.
enum class Repeat : std::uint8_t { once, layer, indexer_layer, dense_layer, sparse_layer, expert };

struct WeightPlace {
  std::size_t layer = 0;
  std::size_t expert = 0;
};

// One published tensor. Exactly one of `matrix` and `vector` is given.
struct WeightRule {
  std::string_view
      name;  // of the module (matrix: ".weight" and scales follow) or of the tensor (vector); {layer} and {expert} are filled in
  Repeat repeat = Repeat::once;
  Shape (*shape)(const ModelConfig& config) = nullptr;
  Weight& (*matrix)(ModelWeights& weights, WeightPlace place) = nullptr;
  Tensor& (*vector)(ModelWeights& weights, WeightPlace place) = nullptr;
};

struct Family {
  std::span<const std::string_view> model_types;
  std::span<const std::string_view> required_fields;  // of config.json
  Status (*check_config)(const ModelConfig& config);
  std::span<const WeightRule> weights;
};

// The list of families; each is a file in families/.
std::span<const Family* const> families();
// The family of `config`, its config checked; an error names what is supported.
Result<const Family*> find_family(const ModelConfig& config);

// Published name of a rule at a place: "model.layers.3.mlp.experts.7.up_proj".
std::string published_name(const WeightRule& rule, WeightPlace place);
// How often for_each_place visits: by arithmetic, because a damaged config may ask for billions.
std::int64_t count_places(const WeightRule& rule, const ModelConfig& config);
// Calls visit(place) for each repetition of the rule in a model of this config.
template <class Visit>
void for_each_place(const WeightRule& rule, const ModelConfig& config, Visit&& visit) {
  if (rule.repeat == Repeat::once) return visit(WeightPlace{});
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(config.num_hidden_layers); ++layer) {
    const bool sparse = config.mlp_kinds[layer] == MlpKind::sparse;
    const bool indexer = config.is_sparse_attention() && config.indexer_kinds[layer] == IndexerKind::full;
    switch (rule.repeat) {
      case Repeat::once:
        break;
      case Repeat::layer:
        visit(WeightPlace{.layer = layer});
        break;
      case Repeat::indexer_layer:
        if (indexer) visit(WeightPlace{.layer = layer});
        break;
      case Repeat::dense_layer:
        if (!sparse) visit(WeightPlace{.layer = layer});
        break;
      case Repeat::sparse_layer:
        if (sparse) visit(WeightPlace{.layer = layer});
        break;
      case Repeat::expert:
        for (std::size_t expert = 0; sparse && expert < static_cast<std::size_t>(config.n_routed_experts); ++expert)
          visit(WeightPlace{layer, expert});
        break;
    }
  }
}

}  // namespace reckoner
