// Quantisation metadata against itself and against the tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "diagnose/lint/checks.h"

namespace reckoner::lint {
namespace {

struct Fusion {
  std::string_view fused;
  std::string_view part;
};
// Names under which engines build what checkpoints store in parts.
constexpr std::array kFusions = {
    Fusion{"fused_qkv_a_proj_with_mqa", "q_a_proj"},
    Fusion{"fused_qkv_a_proj_with_mqa", "kv_a_proj_with_mqa"},
    Fusion{"qkv_a_proj", "q_a_proj"},
    Fusion{"qkv_proj", "q_proj"},
    Fusion{"qkv_proj", "k_proj"},
    Fusion{"qkv_proj", "v_proj"},
    Fusion{"gate_up_proj", "gate_proj"},
    Fusion{"gate_up_proj", "up_proj"},
    Fusion{"wk_weights_proj", "weights_proj"},
};

std::optional<QuantMetadata> block_of(const std::optional<JsonNode>& object) {
  if (!object || !object->is_object()) return std::nullopt;
  const Result<std::optional<JsonNode>> node = object->optional("quantization_config");
  if (!node || !*node) return std::nullopt;
  Result<QuantMetadata> quant = parse_quantization_config(**node);
  return quant ? std::optional(std::move(quant).value()) : std::nullopt;
}

std::optional<JsonNode> root_of(const LintDocument& document) {
  return document.json ? std::optional(document.json->root()) : std::nullopt;
}

std::optional<JsonNode> member(const std::optional<JsonNode>& object, std::string_view key) {
  if (!object || !object->is_object()) return std::nullopt;
  const Result<std::optional<JsonNode>> node = object->optional(key);
  return node ? *node : std::nullopt;
}

std::string format_text(const QuantMetadata& quant) {
  std::string text = quant.method;
  for (const std::string& part : {quant.algorithm, quant.format}) text += part.empty() ? "" : " " + part;
  if (quant.group_size > 0) text += fmt::format(", groups of {}", quant.group_size);
  return text;
}

// Patterns of `a` that `b` lacks, the first few.
std::string only_in(const QuantMetadata& a, const QuantMetadata& b) {
  std::vector<std::string> only;
  for (const std::string& text : a.exclude) {
    if (std::find(b.exclude.begin(), b.exclude.end(), text) == b.exclude.end()) only.push_back("'" + text + "'");
  }
  constexpr std::size_t kShown = 3;
  const std::size_t more = only.size() > kShown ? only.size() - kShown : 0;
  only.resize(only.size() - more);
  return fmt::format("{}{}", fmt::join(only, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

bool is_matrix(const LintModule& module) { return module.data() != nullptr && module.data()->shape.rank() == 2; }

// Lists may differ in words only: what counts is the modules that one covers and the other does not.
void compare_lists(const LintInput& input, const QuantMetadata& config, const QuantMetadata& hf, LintReport& report) {
  std::int64_t differing = 0;
  const LintModule* first = nullptr;
  for (const LintModule& module : input.modules) {
    if (!is_matrix(module) || excluded(config, module.name) == excluded(hf, module.name)) continue;
    if (differing++ == 0) first = &module;
  }
  if (first == nullptr) return;
  const std::string in_hf = only_in(hf, config);
  const std::string in_config = only_in(config, hf);
  report.add(
      "quant-config-conflict",
      {"lists of unquantised modules",
       fmt::format("modules in one list and not in the other: {}, the first is '{}', which is {}; only hf_quant_config.json has {}; only "
                   "config.json has {}",
                   differing, first->name, storage_name(first->storage), in_hf.empty() ? "nothing" : in_hf,
                   in_config.empty() ? "nothing" : in_config)});
}

void compare_blocks(const LintInput& input, const QuantMetadata& config, const QuantMetadata& hf, LintReport& report) {
  if (format_text(config) != format_text(hf)) {
    report.add("quant-config-conflict",
               {"format", fmt::format("config.json says {}, hf_quant_config.json says {}", format_text(config), format_text(hf))});
  }
  if (config.kv_cache != hf.kv_cache) {
    report.add("quant-config-conflict",
               {"KV cache", fmt::format("config.json asks for {}, hf_quant_config.json for {}",
                                        config.kv_cache.empty() ? "none" : config.kv_cache, hf.kv_cache.empty() ? "none" : hf.kv_cache)});
  }
  compare_lists(input, config, hf, report);
}

// What the metadata means, as Storage; empty when it cannot be told.
std::vector<Storage> meant(const QuantMetadata& quant) {
  const std::vector<Storage> fp8 = {Storage::fp8_block, Storage::fp8_channel, Storage::fp8_tensor};
  if (quant.method == "fp8") return fp8;
  if (quant.method == "modelopt" && quant.algorithm.starts_with("NVFP4")) return {Storage::nvfp4};
  if (quant.method == "modelopt" && quant.algorithm.starts_with("FP8")) return fp8;
  if (quant.method == "compressed-tensors" && quant.format == "nvfp4-pack-quantized") return {Storage::nvfp4_packed};
  if (quant.method == "compressed-tensors" && quant.format == "pack-quantized") return {Storage::int4};
  if (quant.method == "compressed-tensors" && quant.format == "float-quantized") return fp8;
  return {};
}

bool covers_a_tensor(const LintInput& input, std::string_view module) {
  const auto at = std::lower_bound(input.tensors.begin(), input.tensors.end(), module,
                                   [](const LintTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  for (auto tensor = at; tensor != input.tensors.end() && tensor->name.starts_with(module); ++tensor) {
    if (tensor->name.size() == module.size() || tensor->name[module.size()] == '.') return true;
    if (tensor->name[module.size()] > '.') break;
  }
  return false;
}

bool matches_something(const LintInput& input, const ModulePatterns& patterns, std::size_t pattern) {
  if (patterns.is_name(pattern) && covers_a_tensor(input, patterns.texts()[pattern])) return true;
  return std::any_of(input.modules.begin(), input.modules.end(),
                     [&](const LintModule& module) { return patterns.matches(pattern, module.name); });
}

bool would_match(const LintInput& input, const std::string& text, PatternDialect dialect) {
  const ModulePatterns changed({text}, dialect);
  return matches_something(input, changed, 0);
}

PatternDialect dialect_of(const QuantMetadata& quant) {
  return quant.method == "fp8"        ? PatternDialect::names
         : quant.method == "modelopt" ? PatternDialect::globs
                                      : PatternDialect::names_or_regexes;
}

// The text with one name of a fusion in place of the other, if that then matches: which.
std::optional<std::string> under_another_name(const LintInput& input, const std::string& text) {
  for (const Fusion& fusion : kFusions) {
    for (const auto& [from, to] : {std::pair(fusion.fused, fusion.part), std::pair(fusion.part, fusion.fused)}) {
      const std::size_t at = text.find(from);
      const std::size_t end = at + from.size();
      if (at == std::string::npos || (at > 0 && text[at - 1] != '.' && text[at - 1] != '*') ||
          (end < text.size() && text[end] != '*' && text[end] != '.'))
        continue;
      std::string changed = text;
      if (would_match(input, changed.replace(at, from.size(), to), dialect_of(input.quant))) return std::string(to);
    }
  }
  return std::nullopt;
}

std::optional<std::string> with_another_prefix(const LintInput& input, const std::string& text) {
  for (const char* prefix : {"model.", "language_model.", "language_model.model.", "model.language_model."}) {
    const std::string longer = prefix + text;
    if (would_match(input, longer, dialect_of(input.quant))) return longer;
    if (text.starts_with(prefix) && would_match(input, text.substr(std::string_view(prefix).size()), dialect_of(input.quant)))
      return text.substr(std::string_view(prefix).size());
  }
  return std::nullopt;
}

std::int64_t layers_present(const LintInput& input) {
  std::int64_t count = 0;
  for (const LintModule& module : input.modules) count = std::max(count, module.layer.value_or(-1) + 1);
  return count;
}

void unmatched(const LintInput& input, const std::string& text, LintReport& report) {
  const std::string place = input.quant.source.substr(input.quant.source.rfind('/') + 1);
  if (const auto name = under_another_name(input, text))
    return report.add("ignore-fused-name", {place, fmt::format("'{}' matches nothing; the checkpoint has it as {}", text, *name),
                                            number_after(text, "layers.")});
  if (const auto longer = with_another_prefix(input, text))
    return report.add("ignore-missing-prefix",
                      {place, fmt::format("'{}' matches nothing; '{}' would", text, *longer), number_after(text, "layers.")});
  report.add("ignore-nonexistent", {place, fmt::format("'{}' matches nothing in the checkpoint", text), number_after(text, "layers.")});
}

// Engines that build the fused module ask the list for its name.
void report_parts(const LintInput& input, LintReport& report) {
  for (const LintModule& module : input.modules) {
    if (module.storage != Storage::plain || !is_matrix(module) || !excluded(input.quant, module.name)) continue;
    for (const Fusion& fusion : kFusions) {
      if (module.leaf() != fusion.part) continue;
      if (excluded(input.quant, fmt::format("{}.{}", module.parent(), fusion.fused))) continue;
      const auto& texts = input.quant.exclude;
      std::size_t pattern = 0;
      while (pattern + 1 < texts.size() && !input.quant.excluded_modules.matches(pattern, module.name)) ++pattern;
      report.add("ignore-by-parts", {module.name, fmt::format("excluded by '{}', which does not cover {}", texts[pattern], fusion.fused),
                                     module.layer, module.expert});
      break;
    }
  }
}

// Whether the metadata says that the module is quantised.
bool meant_quantised(const QuantMetadata& quant, const LintModule& module) {
  if (excluded(quant, module.name)) return false;
  return quant.targets.empty() || quant.targets.matches(module.name);
}

// Modules that no method quantises and that lists need not name.
bool never_quantised(const LintInput& input, const LintModule& module) {
  const std::string_view leaf = module.leaf();
  if (leaf == "embed_tokens" || leaf == "gate" || leaf.ends_with("norm")) return true;
  if (input.quant.method == "fp8" && (leaf == "lm_head" || leaf == "head")) return true;
  if (input.family == nullptr) return false;
  const auto& skipped = input.family->skipped;
  return std::any_of(skipped.begin(), skipped.end(), [&](std::string_view prefix) { return module.name.starts_with(prefix); });
}

}  // namespace

void check_quant_documents(const LintInput& input, LintReport& report) {
  const std::optional<JsonNode> root = root_of(input.config);
  const std::optional<QuantMetadata> top = block_of(root);
  const std::optional<QuantMetadata> nested = block_of(member(root, "text_config"));
  std::optional<QuantMetadata> hf;
  if (const std::optional<JsonNode> document = root_of(input.hf_quant_config)) {
    if (Result<QuantMetadata> quant = parse_hf_quant_config(*document)) hf = std::move(quant).value();
  }
  if (top && hf) compare_blocks(input, *top, *hf, report);
  const std::optional<QuantMetadata>& wins = hf ? hf : top;
  if (nested && wins && format_text(*nested) != format_text(*wins)) {
    report.add("quant-config-stale", {"config.json: text_config.quantization_config",
                                      fmt::format("says {}; {} says {}", format_text(*nested),
                                                  hf ? "hf_quant_config.json" : "the top level", format_text(*wins))});
  }
}

void check_quant_formats(const LintInput& input, LintReport& report) {
  if (!input.complete() || !input.quant_error.empty()) return;
  std::map<Storage, const LintModule*> present;
  for (const LintModule& module : input.modules) {
    if (is_quantised(module.storage)) present.emplace(module.storage, &module);
  }
  const QuantMetadata& quant = input.quant;
  if (quant.method.empty() && !present.empty()) {
    const auto& [storage, module] = *present.begin();
    report.add("quant-config-missing",
               {"config.json", fmt::format("no quantization_config; '{}' is {}", module->name, storage_name(storage))});
  }
  const std::vector<Storage> wanted = meant(quant);
  if (wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](Storage storage) { return present.contains(storage); })) return;
  const std::string found = present.empty()
                                ? "every weight is unquantised"
                                : fmt::format("'{}' is {}", present.begin()->second->name, storage_name(present.begin()->first));
  report.add("quant-config-contradicts-tensors",
             {quant.source.substr(quant.source.rfind('/') + 1), fmt::format("says {}; {}", format_text(quant), found)});
}

void check_ignore_names(const LintInput& input, LintReport& report) {
  if (!input.complete()) return;
  const std::int64_t layers = layers_present(input);
  const ModulePatterns& patterns = input.quant.excluded_modules;
  for (std::size_t i = 0; i < patterns.texts().size(); ++i) {
    const std::string& text = patterns.texts()[i];
    // Lists name MTP layers that the checkpoint may have lost: a finding of its own.
    if (number_after(text, "layers.").value_or(-1) >= layers) continue;
    if (!matches_something(input, patterns, i)) unmatched(input, text, report);
  }
  report_parts(input, report);
}

void check_ignore_lists(const LintInput& input, LintReport& report) {
  const QuantMetadata& quant = input.quant;
  if (quant.method.empty() || !input.quant_error.empty()) return;
  const bool has_list = !quant.exclude.empty() || !quant.targets.empty();
  for (const LintModule& module : input.modules) {
    if (!is_matrix(module)) continue;
    const bool wanted = meant_quantised(quant, module);
    if (is_quantised(module.storage) && !wanted) {
      report.add("quantised-though-excluded",
                 {where(*module.data()), fmt::format("{}, and excluded", storage_name(module.storage)), module.layer, module.expert});
    } else if (module.storage == Storage::plain && wanted && has_list && !never_quantised(input, module)) {
      report.add("unquantised-not-excluded",
                 {where(*module.data()), fmt::format("{}, and not excluded", name(module.data()->dtype)), module.layer, module.expert});
    }
  }
}

}  // namespace reckoner::lint
