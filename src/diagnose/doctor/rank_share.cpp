#include "diagnose/doctor/rank_share.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "quant/format.h"

namespace reckoner::doctor {
namespace {

constexpr int kMostRanks = 64;

// What is cut: rows (of what comes out), or columns (of what goes in, so that parts of a sum come out).
enum class Cut : std::uint8_t { none, rows, columns };

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
  for (const std::string_view end : ends) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

Cut cut_of(const WeightRule& rule) {
  switch (rule.role) {
    case WeightRole::head:
      return Cut::rows;
    case WeightRole::attention:
      if (ends_with_any(rule.name, {".q_a_proj", ".kv_a_proj_with_mqa"})) return Cut::none;
      return rule.name.ends_with(".o_proj") ? Cut::columns : Cut::rows;
    case WeightRole::mlp:
    case WeightRole::expert:
    case WeightRole::shared_expert:
      return rule.name.ends_with(".down_proj") ? Cut::columns : Cut::rows;
    case WeightRole::embedding:
    case WeightRole::norm:
    case WeightRole::indexer:
    case WeightRole::index_weights:
    case WeightRole::router:
      return Cut::none;
  }
  return Cut::none;
}

bool is_key_or_value(const WeightRule& rule) { return ends_with_any(rule.name, {".k_proj", ".v_proj", ".k_proj.bias", ".v_proj.bias"}); }

// The rules name places in weights that could be written.
ModelWeights& named(const Model& model) { return const_cast<ModelWeights&>(model.weights); }

// Grouped-query attention with fewer heads of keys than ranks: several ranks have the same one.
std::int64_t key_heads_of_share(const ModelConfig& config, int ranks) {
  return std::max<std::int64_t>(1, config.num_key_value_heads / ranks);
}

// Rows of a share: as many as its largest rank has.
std::int64_t rows_of_share(const WeightRule& rule, const ModelConfig& config, std::int64_t rows, int ranks) {
  if (is_key_or_value(rule)) return rows / config.num_key_value_heads * key_heads_of_share(config, ranks);
  return (rows + ranks - 1) / ranks;
}

// Why a matrix's columns cannot be divided; empty: they can.
std::string column_obstacle(const Weight& matrix, int ranks) {
  const std::int64_t block = std::max(info(matrix.format).block_cols, info(matrix.format).cols_multiple);
  if (matrix.cols % (ranks * block) == 0) return {};
  return fmt::format("{} has {} columns in blocks of {}", matrix.name, matrix.cols, block);
}

std::string obstacle(const Model& whole, int ranks) {
  const ModelConfig& config = whole.config;
  if (config.num_attention_heads % ranks != 0) return fmt::format("there are {} attention heads", config.num_attention_heads);
  if (!config.is_mla() && config.num_key_value_heads % ranks != 0 && ranks % config.num_key_value_heads != 0)
    return fmt::format("there are {} heads of keys and values", config.num_key_value_heads);
  if (config.intermediate_size % ranks != 0) return fmt::format("a dense MLP is {} wide", config.intermediate_size);
  if (config.moe_intermediate_size % ranks != 0) return fmt::format("an expert is {} wide", config.moe_intermediate_size);
  std::string found;
  for_each_rule(*whole.family, config, [&](const WeightRule& rule) {
    if (rule.matrix == nullptr || cut_of(rule) != Cut::columns) return;
    for_each_place(rule, config, [&](WeightPlace place) {
      if (found.empty()) found = column_obstacle(rule.matrix(named(whole), place), ranks);
    });
  });
  return found;
}

}  // namespace

Placement placement_of(const WeightRule& rule) { return cut_of(rule) == Cut::none ? Placement::replicated : Placement::sharded; }

Status check_ranks(const Model& whole, int ranks) {
  const std::string found = ranks == 1 ? "" : obstacle(whole, ranks);
  if (found.empty()) return {};
  std::vector<int> possible;
  for (int count = 1; count <= kMostRanks; ++count) {
    if (count == 1 || obstacle(whole, count).empty()) possible.push_back(count);
  }
  return Error{fmt::format("--tp {}: {}, which {} ranks cannot divide", ranks, found, ranks),
               fmt::format("possible are {}", fmt::join(possible, ", "))};
}

std::unique_ptr<Model> rank_share(const Model& whole, int ranks) {
  auto share = std::make_unique<Model>();
  share->config = whole.config;
  share->quant = whole.quant;
  share->family = whole.family;
  share->weights.embed = whole.weights.embed;
  share->weights.layers = whole.weights.layers;
  share->weights.final_norm = whole.weights.final_norm;
  share->weights.lm_head = whole.weights.lm_head;
  ModelConfig& config = share->config;
  config.num_attention_heads /= ranks;
  config.num_key_value_heads = config.is_mla() ? config.num_attention_heads : key_heads_of_share(whole.config, ranks);
  config.intermediate_size /= ranks;
  config.moe_intermediate_size /= ranks;
  config.vocab_size = (config.vocab_size + ranks - 1) / ranks;  // of the logits
  for_each_rule(*whole.family, whole.config, [&](const WeightRule& rule) {
    const Cut cut = cut_of(rule);
    for_each_place(rule, whole.config, [&](WeightPlace place) {
      if (rule.matrix != nullptr) {
        Weight& matrix = rule.matrix(share->weights, place);
        if (cut == Cut::rows) matrix.rows = rows_of_share(rule, whole.config, matrix.rows, ranks);
        if (cut == Cut::columns) matrix.cols /= ranks;
        share->weight_bytes += weight_bytes(matrix);
      } else {
        Tensor& vector = rule.vector(share->weights, place);
        if (cut == Cut::rows && !vector.empty()) vector = vector.rows(0, rows_of_share(rule, whole.config, vector.dim(0), ranks));
        share->weight_bytes += vector.bytes();
      }
    });
  });
  if (whole.config.tie_word_embeddings) share->weights.lm_head.rows = (whole.weights.lm_head.rows + ranks - 1) / ranks;
  return share;
}

}  // namespace reckoner::doctor
