// The layer for multi-token prediction: promised, there, whole, and like the others?
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "diagnose/lint/checks.h"

namespace reckoner::lint {
namespace {

struct Layer {
  std::int64_t number;
  std::string prefix;                                     // "model.layers.78."
  std::map<std::string_view, const LintModule*> modules;  // by the name after the prefix
};

std::string prefix_of(const LintModule& module) {
  const std::size_t at = module.name.find("layers.") + std::string_view("layers.").size();
  return module.name.substr(0, module.name.find('.', at) + 1);
}

std::map<std::int64_t, Layer> layers_from(const LintInput& input, std::int64_t first) {
  std::map<std::int64_t, Layer> layers;
  for (const LintModule& module : input.modules) {
    if (!module.layer || *module.layer < first) continue;
    const std::string prefix = prefix_of(module);
    if (input.family != nullptr && prefix != layer_prefix(*input.family, *module.layer)) continue;  // of a vision tower
    Layer& layer = layers[*module.layer];
    layer.number = *module.layer;
    layer.prefix = prefix;
    layer.modules.emplace(std::string_view(module.name).substr(prefix.size()), &module);
  }
  return layers;
}

// What a decoder layer like it has, and what only an MTP layer has.
void report_lacking(const Layer& mtp, const Layer* decoder, LintReport& report) {
  const auto lacks = [&](std::string_view name) {
    report.add("mtp-incomplete",
               {fmt::format("tensor '{}{}.weight'", mtp.prefix, name), "missing", mtp.number, number_after(name, ".experts.")});
  };
  for (const std::string_view name : {"enorm", "hnorm"}) {
    if (!mtp.modules.contains(name)) lacks(name);
  }
  if (decoder == nullptr) return;
  for (const auto& [name, module] : decoder->modules) {
    if (module->data() != nullptr && !mtp.modules.contains(name)) lacks(name);
  }
}

void report_formats(const Layer& mtp, const Layer& decoder, LintReport& report) {
  for (const auto& [name, module] : decoder.modules) {
    const auto same = mtp.modules.find(name);
    if (same == mtp.modules.end() || module->data() == nullptr || module->data()->shape.rank() != 2) continue;
    if (same->second->storage == module->storage) continue;
    report.add("mtp-other-format", {fmt::format("layer {}", mtp.number),
                                    fmt::format("'{}' is {}, in layer {} it is {}", same->second->name, storage_name(same->second->storage),
                                                decoder.number, storage_name(module->storage)),
                                    mtp.number});
    return;
  }
}

// Files that hold nothing but MTP layers and are not named like the other shards.
void report_files(const LintInput& input, std::int64_t first, LintReport& report) {
  std::set<const LintFile*> with;
  std::set<const LintFile*> with_others;
  for (const LintTensor& tensor : input.tensors) {
    const bool is_mtp = number_after(tensor.name, "layers.").value_or(-1) >= first || tensor.name.starts_with("mtp.");
    (is_mtp ? with : with_others).insert(tensor.file);
  }
  for (const LintFile* file : with) {
    if (with_others.contains(file) || file->name.starts_with("model")) continue;
    report.add("mtp-other-file", {file->name, file->served ? "named by the index" : "not named by the index, and so not read"});
  }
}

}  // namespace

void check_mtp(const LintInput& input, LintReport& report) {
  if (!input.model || !input.complete()) return;
  const std::int64_t first = input.model->num_hidden_layers;
  const std::int64_t promised = input.model->num_nextn_predict_layers;
  report_files(input, first, report);
  const std::map<std::int64_t, Layer> layers = layers_from(input, first - 1);
  const auto decoder = layers.find(first - 1);
  if (promised > 0 && !layers.contains(first))
    report.add("mtp-absent", {"config.json: field 'num_nextn_predict_layers'",
                              fmt::format("{}; the checkpoint has no tensors of layer {}", promised, first), first});
  for (const auto& [number, layer] : layers) {
    if (number < first || number >= first + std::max<std::int64_t>(promised, 1)) continue;
    if (!layer.modules.contains("eh_proj")) {
      report.add("mtp-partial",
                 {fmt::format("tensor '{}eh_proj.weight'", layer.prefix),
                  fmt::format("missing, while {} other modules of layer {} are there", layer.modules.size(), number), number});
      continue;
    }
    if (promised == 0)
      report.add("mtp-undeclared",
                 {"config.json: field 'num_nextn_predict_layers'", fmt::format("absent or 0; layer {} is an MTP layer", number), number});
    report_lacking(layer, decoder == layers.end() ? nullptr : &decoder->second, report);
    if (decoder != layers.end()) report_formats(layer, decoder->second, report);
  }
}

}  // namespace reckoner::lint
