// config.json and generation_config.json: what cannot be used, and what different servers read differently.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "diagnose/lint/checks.h"

namespace reckoner::lint {
namespace {

std::optional<JsonNode> member(const JsonNode& object, std::string_view key) {
  if (!object.is_object()) return std::nullopt;
  const Result<std::optional<JsonNode>> node = object.optional(key);
  return node ? *node : std::nullopt;
}

std::optional<double> number(const JsonNode& object, std::string_view key) {
  const std::optional<JsonNode> node = member(object, key);
  if (!node) return std::nullopt;
  const Result<double> value = node->as_float();
  return value ? std::optional(*value) : std::nullopt;
}

std::optional<std::string> text(const JsonNode& object, std::string_view key) {
  const std::optional<JsonNode> node = member(object, key);
  if (!node) return std::nullopt;
  const Result<std::string> value = node->as_string();
  return value ? std::optional(*value) : std::nullopt;
}

struct RopePlace {
  std::string_view name;  // "rope_parameters"; empty: the top level
  JsonNode object;
};

std::vector<RopePlace> rope_places(const JsonNode& config) {
  std::vector<RopePlace> places;
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    if (const std::optional<JsonNode> object = member(config, name); object && object->is_object()) places.push_back({name, *object});
  }
  places.push_back({"", config});
  return places;
}

std::string field(std::string_view object, std::string_view key) {
  return object.empty() ? fmt::format("config.json: field '{}'", key) : fmt::format("config.json: field '{}.{}'", object, key);
}

void check_theta(const std::vector<RopePlace>& places, LintReport& report) {
  const RopePlace* first = nullptr;
  for (const RopePlace& place : places) {
    const std::optional<double> theta = number(place.object, "rope_theta");
    if (!theta) continue;
    if (first == nullptr) {
      first = &place;
    } else if (*theta != *number(first->object, "rope_theta")) {
      report.add("rope-theta-conflict", {field(place.name, "rope_theta"), fmt::format("{}; field '{}.rope_theta' says {}", *theta,
                                                                                      first->name, *number(first->object, "rope_theta"))});
    }
  }
  if (first == nullptr) {
    report.add("rope-theta-missing",
               {"config.json: field 'rope_theta'", "neither at the top level nor in rope_parameters or rope_scaling"});
  } else if (!number(places.back().object, "rope_theta")) {
    report.add("rope-theta-nested", {field(first->name, "rope_theta"),
                                     fmt::format("{}; there is no rope_theta at the top level", *number(first->object, "rope_theta"))});
  }
}

void check_rope_type(const RopePlace& place, LintReport& report) {
  std::optional<std::string> type = text(place.object, "rope_type");
  if (!type) type = text(place.object, "type");
  if (!type) return;
  if (*type == "default") {
    if (const std::optional<double> factor = number(place.object, "factor"))
      report.add("rope-default-with-factor", {field(place.name, "factor"), fmt::format("{}, with rope type \"default\"", *factor)});
    return;
  }
  if (*type != "yarn" && *type != "deepseek_yarn") return;
  for (const std::string_view key : {"factor", "original_max_position_embeddings"}) {
    if (!number(place.object, key))
      report.add("rope-yarn-incomplete", {field(place.name, key), fmt::format("missing, with rope type \"{}\"", *type)});
  }
}

bool has_indexer(const LintInput& input, std::int64_t layer) {
  const std::string prefix = fmt::format("{}self_attn.indexer.", layer_prefix(*input.family, layer));
  const auto at = std::lower_bound(input.tensors.begin(), input.tensors.end(), prefix,
                                   [](const LintTensor& tensor, const std::string& wanted) { return tensor.name < wanted; });
  return at != input.tensors.end() && at->name.starts_with(prefix);
}

std::vector<std::int64_t> token_ids(const std::optional<JsonNode>& object) {
  if (!object || !object->is_object()) return {};
  Result<std::vector<std::int64_t>> ids = read_token_ids(*object, "eos_token_id");
  if (!ids) return {};
  std::sort(ids->begin(), ids->end());
  return std::move(ids).value();
}

void check_eos_range(const LintInput& input, std::string_view file, const std::vector<std::int64_t>& ids, LintReport& report) {
  const std::optional<JsonNode> config = input.text_config();
  const double rows = config ? number(*config, "vocab_size").value_or(0) : 0;
  for (const std::int64_t id : ids) {
    const std::string place = fmt::format("{}: field 'eos_token_id'", file);
    if (rows > 0 && static_cast<double>(id) >= rows) {
      report.add("eos-beyond-vocab", {place, fmt::format("{}; vocab_size is {}", id, rows)});
    } else if (input.tokenizer && id >= static_cast<std::int64_t>(input.tokenizer->vocab_size())) {
      report.add("eos-beyond-vocab", {place, fmt::format("{}; the tokenizer has {} tokens", id, input.tokenizer->vocab_size())});
    }
  }
}

// The eos_token of tokenizer_config.json, which may be an object with the text in "content".
std::optional<std::string> tokenizer_eos(const LintInput& input) {
  if (!input.tokenizer_config.json) return std::nullopt;
  const JsonNode root = input.tokenizer_config.json->root();
  if (const std::optional<std::string> own = text(root, "eos_token")) return own;
  const std::optional<JsonNode> object = member(root, "eos_token");
  return object ? text(*object, "content") : std::nullopt;
}

}  // namespace

void check_rope(const LintInput& input, LintReport& report) {
  const std::optional<JsonNode> config = input.text_config();
  if (!config) return;
  const std::vector<RopePlace> places = rope_places(*config);
  check_theta(places, report);
  for (const RopePlace& place : places) {
    if (!place.name.empty()) check_rope_type(place, report);
  }
}

void check_head_dim(const LintInput& input, LintReport& report) {
  const std::optional<JsonNode> config = input.text_config();
  if (!config || !number(*config, "kv_lora_rank")) return;
  const std::optional<double> head = number(*config, "head_dim");
  const double width = number(*config, "qk_nope_head_dim").value_or(0) + number(*config, "qk_rope_head_dim").value_or(0);
  if (head && *head != width)
    report.add("head-dim-trap", {"config.json: field 'head_dim'", fmt::format("{}; a query or key head is {} wide", *head, width)});
}

void check_indexers(const LintInput& input, LintReport& report) {
  if (!input.model || !input.model->is_sparse_attention()) return;
  for (const Setting& setting : input.model->settings) {
    if (setting.name == "indexer layers" && setting.note.find("says otherwise") != std::string::npos)
      report.add("indexer-fields-conflict", {"config.json", fmt::format("{} from {}; {}", setting.value, setting.source, setting.note)});
  }
  if (input.family == nullptr || !input.complete()) return;
  for (std::int64_t layer = 0; layer < input.model->num_hidden_layers; ++layer) {
    const bool shared = input.model->indexer_kinds[static_cast<std::size_t>(layer)] == IndexerKind::shared;
    const std::string place = fmt::format("layer {}: self_attn.indexer", layer);
    if (shared && has_indexer(input, layer))
      report.add("indexer-in-shared-layer",
                 {place, "has tensors; config.json says that the layer shares the selection of one before it", layer});
    if (!shared && !has_indexer(input, layer))
      report.add("indexer-missing", {place, "has no tensors; config.json says that the layer owns an indexer", layer});
  }
}

void check_eos(const LintInput& input, LintReport& report) {
  const std::vector<std::int64_t> own = token_ids(input.text_config());
  const std::vector<std::int64_t> generation =
      token_ids(input.generation_config.json ? std::optional(input.generation_config.json->root()) : std::nullopt);
  if (!own.empty() && !generation.empty() && own != generation)
    report.add("eos-differs", {"field 'eos_token_id'", fmt::format("config.json says {}, generation_config.json {}", fmt::join(own, ", "),
                                                                   fmt::join(generation, ", "))});
  check_eos_range(input, "config.json", own, report);
  check_eos_range(input, "generation_config.json", generation, report);
  const std::optional<std::string> token = tokenizer_eos(input);
  if (!token || !input.tokenizer) return;
  const std::vector<std::int64_t>& ids = generation.empty() ? own : generation;
  const std::optional<TokenId> id = input.tokenizer->token_id(*token);
  if (id && std::find(ids.begin(), ids.end(), static_cast<std::int64_t>(*id)) != ids.end()) return;
  report.add("eos-token-unlisted",
             {"tokenizer_config.json: field 'eos_token'",
              fmt::format("{} ({}); eos_token_id is {}", *token, id ? fmt::format("token {}", *id) : "no token of the vocabulary",
                          ids.empty() ? "not given" : fmt::format("{}", fmt::join(ids, ", ")))});
}

void check_config(const LintInput& input, LintReport& report) {
  // The parser's message repeats what a finding of its own says better.
  const bool known = report.has("rope-theta-conflict") || report.has("rope-theta-missing") || report.has("rope-yarn-incomplete") ||
                     report.has("eos-beyond-vocab");
  for (const LintDocument* document : {&input.generation_config, &input.hf_quant_config, &input.tokenizer_config}) {
    if (!document->error.empty() && !(document->json && known))
      report.add("config-unreadable", {document->name, own_words(input, document->name, document->error)});
  }
  if (!input.model_error.empty() && !known)
    report.add("config-unreadable", {input.config.name, own_words(input, input.config.name, input.model_error)});
  if (!input.quant_error.empty()) report.add("config-unreadable", {"quantisation metadata", input.quant_error});
  if (!input.family_error.empty())
    report.add("family-unknown", {input.config.name, own_words(input, input.config.name, input.family_error)});
}

}  // namespace reckoner::lint
