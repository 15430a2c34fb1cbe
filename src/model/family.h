// Family: what is particular to a model type, as data: what its config must say and where its published tensors go. No maths.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/model_config.h"
#include "model/weights.h"
#include "parallel/share.h"

namespace reckoner {

// Which layers (and experts) a rule is repeated for.
enum class Repeat : std::uint8_t { once, layer, indexer_layer, dense_layer, sparse_layer, expert };

// What a weight is for: what is quantised (quantize), what must be alike (lint).
enum class WeightRole : std::uint8_t {
  embedding,
  head,
  norm,           // every vector that belongs to a norm
  attention,      // projections of attention, and their biases
  indexer,        // projections of queries and keys of the lightning indexer
  index_weights,  // how much each index head counts; published unquantised
  mlp,            // of dense layers
  router,         // with its bias; published unquantised
  expert,         // routed
  shared_expert,
};

struct WeightPlace {
  std::size_t layer = 0;
  std::size_t expert = 0;
};

// One published tensor. Exactly one of `matrix` and `vector` is given.
struct WeightRule {
  std::string_view
      name;  // of the module (matrix: ".weight" and scales follow) or of the tensor (vector); {layer} and {expert} are filled in
  WeightRole role = WeightRole::norm;
  Split split = Split::whole;  // among the ranks of a model in parts (model/share_of.h)
  Repeat repeat = Repeat::once;
  bool (*when)(const ModelConfig& config) = nullptr;  // only for such models; nullptr: for all
  Shape (*shape)(const ModelConfig& config) = nullptr;
  Weight& (*matrix)(ModelWeights& weights, WeightPlace place) = nullptr;
  Tensor& (*vector)(ModelWeights& weights, WeightPlace place) = nullptr;
};

struct Family {
  std::span<const std::string_view> model_types;
  std::span<const std::string_view> required_fields;            // of config.json
  Status (*check_config)(const ModelConfig& config) = nullptr;  // further conditions
  std::span<const std::span<const WeightRule>> weights = {};    // groups of rules (families/tables.h)
  std::string_view prefix = {};                                 // before every name of the rules: "language_model."
  std::span<const std::string_view> skipped = {};               // prefixes of tensors of other parts, e.g. a vision tower
};

// The list of families; each is a file in families/.
std::span<const Family* const> families();
// The family of `config`, its config checked; an error names what is supported.
Result<const Family*> find_family(const ModelConfig& config);

// Published name of a rule at a place: "model.layers.3.mlp.experts.7.up_proj".
std::string published_name(const Family& family, const WeightRule& rule, WeightPlace place);
// Start of the names of a layer's tensors: "model.layers.3."
std::string layer_prefix(const Family& family, std::int64_t layer);
// Calls visit(rule) for each rule that models of this config have.
template <class Visit>
void for_each_rule(const Family& family, const ModelConfig& config, Visit&& visit) {
  for (const std::span<const WeightRule> group : family.weights) {
    for (const WeightRule& rule : group) {
      if (rule.when == nullptr || rule.when(config)) visit(rule);
    }
  }
}
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
