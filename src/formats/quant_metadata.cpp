#include "formats/quant_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <system_error>

#include "formats/remedy.h"

namespace reckoner {
namespace {

constexpr std::array<std::string_view, 3> kMethods = {"modelopt", "compressed-tensors", "fp8"};
constexpr std::int64_t kMaxGroup = 1 << 20;

Result<std::string> string_or_empty(const JsonNode& object, std::string_view key) {
  const std::optional<JsonNode> node = TRY(object.optional(key));
  if (!node) return std::string();
  return TRY(node->as_string());
}

Result<int> int_or_zero(const JsonNode& object, std::string_view key) {
  const std::optional<JsonNode> node = TRY(object.optional(key));
  if (!node) return 0;
  return static_cast<int>(TRY(node->as_int64(1, kMaxGroup)));
}

Result<std::vector<std::string>> strings_or_empty(const JsonNode& object, std::string_view key) {
  std::vector<std::string> strings;
  const std::optional<JsonNode> node = TRY(object.optional(key));
  if (!node) return strings;
  for (const JsonNode& element : TRY(node->as_array())) strings.push_back(TRY(element.as_string()));
  return strings;
}

// {"name": "modelopt", "version": "0.46.0"} -> "modelopt 0.46.0"
Result<std::string> read_producer(const JsonNode& object) {
  const std::optional<JsonNode> node = TRY(object.optional("producer"));
  if (!node || !node->is_object()) return std::string();
  const std::string name = TRY(string_or_empty(*node, "name"));
  const std::string version = TRY(string_or_empty(*node, "version"));
  return version.empty() ? name : fmt::format("{} {}", name, version);
}

// kv_cache_scheme {"num_bits": 8, "type": "float"} -> "FP8"
Result<std::string> read_kv_scheme(const JsonNode& object) {
  const std::optional<JsonNode> scheme = TRY(object.optional("kv_cache_scheme"));
  if (!scheme) return TRY(string_or_empty(object, "kv_cache_quant_algo"));
  const int bits = TRY(int_or_zero(*scheme, "num_bits"));
  const std::string type = TRY(string_or_empty(*scheme, "type"));
  if (bits == 8 && type == "float") return std::string("FP8");
  return fmt::format("{}{}", type, bits);
}

// The group size of the first config group that states one.
Result<int> read_group_size(const JsonNode& object) {
  if (const int size = TRY(int_or_zero(object, "group_size")); size > 0) return size;
  const std::optional<JsonNode> groups = TRY(object.optional("config_groups"));
  if (!groups) return 0;
  for (const auto& [name, group] : TRY(groups->as_object())) {
    const std::optional<JsonNode> weights = TRY(group.optional("weights"));
    if (!weights) continue;
    if (const int size = TRY(int_or_zero(*weights, "group_size")); size > 0) return size;
  }
  return 0;
}

Status check_group_size(QuantMetadata& quant, const JsonNode& node) {
  constexpr int kNvfp4Group = 16;  // fixed by the format
  if (quant.algorithm != "NVFP4") return {};
  if (quant.group_size == 0) quant.group_size = kNvfp4Group;
  if (quant.group_size == kNvfp4Group) return {};
  return node.error(fmt::format("expected a group_size of {} for NVFP4, found {}", kNvfp4Group, quant.group_size));
}

// {"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"}, ...} of ModelOpt's MIXED_PRECISION: the names.
Result<std::vector<std::string>> read_quantized_layers(const JsonNode& object) {
  std::vector<std::string> names;
  const std::optional<JsonNode> node = TRY(object.optional("quantized_layers"));
  if (!node) return names;
  for (const auto& [name, layer] : TRY(node->as_object())) names.push_back(name);
  return names;
}

Status set_excluded(QuantMetadata& quant, const JsonNode& object, std::initializer_list<std::string_view> keys, PatternDialect dialect) {
  for (const std::string_view key : keys) {
    if (quant.exclude.empty()) quant.exclude = TRY(strings_or_empty(object, key));
  }
  quant.excluded_modules = ModulePatterns(quant.exclude, dialect);
  return {};
}

// Targets of all config groups. "Linear" means every linear layer and is no pattern.
Result<ModulePatterns> read_targets(const JsonNode& object) {
  std::vector<std::string> targets;
  const std::optional<JsonNode> groups = TRY(object.optional("config_groups"));
  if (!groups || !groups->is_object()) return ModulePatterns();
  for (const auto& [name, group] : TRY(groups->as_object())) {
    for (const std::string& target : TRY(strings_or_empty(group, "targets"))) {
      if (target == "Linear") return ModulePatterns();
      targets.push_back(target);
    }
  }
  return ModulePatterns(std::move(targets), PatternDialect::names_or_regexes);
}

Status read_modelopt(QuantMetadata& quant, const JsonNode& node) {
  quant.algorithm = TRY(string_or_empty(node, "quant_algo"));
  quant.group_size = TRY(read_group_size(node));
  TRY(set_excluded(quant, node, {"ignore", "exclude_modules"}, PatternDialect::globs));
  std::vector<std::string> layers = TRY(read_quantized_layers(node));
  quant.targets = ModulePatterns(std::move(layers), PatternDialect::names);
  quant.kv_cache = TRY(read_kv_scheme(node));
  return check_group_size(quant, node);
}

Status read_compressed_tensors(QuantMetadata& quant, const JsonNode& node) {
  quant.format = TRY(string_or_empty(node, "format"));
  quant.group_size = TRY(read_group_size(node));
  TRY(set_excluded(quant, node, {"ignore"}, PatternDialect::names_or_regexes));
  quant.targets = TRY(read_targets(node));
  return {};
}

Status read_fp8(QuantMetadata& quant, const JsonNode& node) {
  quant.scale_fmt = TRY(string_or_empty(node, "scale_fmt"));
  return set_excluded(quant, node, {"modules_to_not_convert", "ignored_layers"}, PatternDialect::names);
}

}  // namespace

Result<QuantMetadata> parse_hf_quant_config(const JsonNode& root) {
  QuantMetadata quant;
  quant.method = "modelopt";
  quant.source = root.where();
  quant.producer = TRY(read_producer(root));
  const JsonNode node = TRY(root.required("quantization"));
  TRY(read_modelopt(quant, node));
  return quant;
}

Result<QuantMetadata> parse_quantization_config(const JsonNode& node) {
  QuantMetadata quant;
  const JsonNode method = TRY(node.required("quant_method"));
  quant.method = TRY(method.as_string());
  if (std::find(kMethods.begin(), kMethods.end(), quant.method) == kMethods.end())
    return method.unexpected("one of the supported methods \"modelopt\", \"compressed-tensors\", \"fp8\"");
  quant.source = fmt::format("{}: {}", node.where(), node.path());
  quant.producer = TRY(read_producer(node));
  if (quant.method == "modelopt") TRY(read_modelopt(quant, node));
  if (quant.method == "compressed-tensors") TRY(read_compressed_tensors(quant, node));
  if (quant.method == "fp8") TRY(read_fp8(quant, node));
  return quant;
}

namespace {

// config.json's own block; multimodal models may keep it with the text model.
Result<std::optional<JsonNode>> find_quantization_config(const JsonNode& config) {
  const std::optional<JsonNode> own = TRY(config.optional("quantization_config"));
  if (own) return own;
  const std::optional<JsonNode> text = TRY(config.optional("text_config"));
  if (!text || !text->is_object()) return std::optional<JsonNode>{};
  return text->optional("quantization_config");
}

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

std::string summary(const QuantMetadata& quant) {
  std::string text = or_none(quant.method);
  if (!quant.algorithm.empty()) text += " " + quant.algorithm;
  if (quant.group_size > 0) text += fmt::format(", groups of {}", quant.group_size);
  return text;
}

// Modules in one list and not in the other, as "only in A: x, y".
std::string list_difference(std::vector<std::string> a, std::vector<std::string> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  std::vector<std::string> only;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only));
  if (only.empty()) return {};
  return only.size() == 1 ? fmt::format("'{}'", only.front()) : fmt::format("'{}' and {} more", only.front(), only.size() - 1);
}

// What the losing file says otherwise, one text a subject; empty where both agree.
std::string exclude_note(const QuantMetadata& winner, const QuantMetadata& loser) {
  const std::string extra = list_difference(loser.exclude, winner.exclude);
  const std::string lacking = list_difference(winner.exclude, loser.exclude);
  std::string note;
  if (!lacking.empty()) note += fmt::format("{} lacks {}", loser.source, lacking);
  if (!extra.empty()) note += fmt::format("{}{} adds {}", note.empty() ? "" : "; ", loser.source, extra);
  return note.empty() ? "" : note + "; hf_quant_config.json wins";
}

std::string value_note(const std::string& winner, const std::string& loser, const std::string& loser_source) {
  return winner == loser ? "" : fmt::format("{} says {}; hf_quant_config.json wins", loser_source, or_none(loser));
}

void add_settings(QuantMetadata& quant, const QuantMetadata* other) {
  const std::string source = quant.source.empty() ? "default" : quant.source;
  const auto note = [&](const std::string& winner, const std::string& loser) {
    return other == nullptr ? "" : value_note(winner, loser, other->source);
  };
  quant.settings = {
      {"quantisation", summary(quant), source, note(summary(quant), other ? summary(*other) : "")},
      {"unquantised modules", fmt::format("{} patterns", quant.exclude.size()), source, other ? exclude_note(quant, *other) : ""},
      {"KV cache asked for", or_none(quant.kv_cache), source, note(quant.kv_cache, other ? other->kv_cache : "")},
  };
}

}  // namespace

Result<QuantMetadata> parse_quant_metadata(const JsonNode& config, const std::optional<JsonNode>& hf_quant_config) {
  std::optional<QuantMetadata> from_config;
  if (const std::optional<JsonNode> node = TRY(find_quantization_config(config))) from_config = TRY(parse_quantization_config(*node));
  QuantMetadata quant;
  if (hf_quant_config) {
    quant = TRY(parse_hf_quant_config(*hf_quant_config));
    add_settings(quant, from_config ? &*from_config : nullptr);
  } else {
    if (from_config) quant = *from_config;
    add_settings(quant, nullptr);
  }
  return quant;
}

Result<QuantMetadata> read_quant_metadata(const std::filesystem::path& folder) {
  const JsonDocument config = TRY(read_json_file(folder / "config.json"));
  const std::filesystem::path path = folder / "hf_quant_config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return with_remedy(parse_quant_metadata(config.root(), std::nullopt), kCorrectFile);
  const JsonDocument hf_quant_config = TRY(read_json_file(path));
  return with_remedy(parse_quant_metadata(config.root(), hf_quant_config.root()), kCorrectFile);
}

bool excluded(const QuantMetadata& quant, std::string_view module) { return quant.excluded_modules.matches(module); }

}  // namespace reckoner
