// The parts of each weight: are they there, and alike where they must be?
#include <fmt/format.h>

#include <algorithm>

#include "diagnose/lint/checks.h"

namespace reckoner::lint {
namespace {

struct NeededParts {
  Storage storage;
  std::string_view suffixes[2];
};
constexpr NeededParts kNeeded[] = {
    {Storage::nvfp4, {".weight_scale", ".weight_scale_2"}},
    {Storage::nvfp4_packed, {".weight_scale", ".weight_global_scale"}},
    {Storage::mxfp4, {".weight_scale", {}}},
    {Storage::int4, {".weight_scale", {}}},
};

bool is_expert(const LintModule& module) { return module.expert.has_value(); }

std::string_view input_scale_suffix(const LintModule& module) {
  return module.storage == Storage::nvfp4_packed ? ".input_global_scale" : ".input_scale";
}

// Modules that should be alike: one projection of the experts of the decoder layers, or of one MTP layer.
std::string group_of(const LintInput& input, const LintModule& module) {
  const bool is_mtp = !input.model || module.layer.value_or(0) >= input.model->num_hidden_layers;
  return fmt::format("{} {}", is_mtp ? module.layer.value_or(0) : -1, module.leaf());
}

}  // namespace

void check_formats(const LintInput& input, LintReport& report) {
  for (const LintModule& module : input.modules) {
    const LintTensor* data = module.data();
    if (module.storage != Storage::unknown || data->dtype == DType::f8_e4m3) continue;
    report.add("unsupported-format",
               {where(*data), fmt::format("{} {}", name(data->dtype), data->shape.to_string()), module.layer, module.expert});
  }
}

void check_scale_presence(const LintInput& input, LintReport& report) {
  if (!input.complete()) return;
  for (const LintModule& module : input.modules) {
    const auto lacks = [&](std::string_view suffix) {
      report.add("scale-missing",
                 {fmt::format("tensor '{}{}'", module.name, suffix),
                  fmt::format("missing; {} in {} needs it", module.data()->name.substr(module.name.size() + 1), module.data()->file->name),
                  module.layer, module.expert});
    };
    if (module.storage == Storage::unknown && module.data()->dtype == DType::f8_e4m3) lacks(".weight_scale_inv");
    for (const NeededParts& needed : kNeeded) {
      for (const std::string_view suffix : needed.suffixes) {
        if (needed.storage == module.storage && !suffix.empty() && module.part(suffix) == nullptr) lacks(suffix);
      }
    }
  }
}

void check_input_scale_presence(const LintInput& input, LintReport& report) {
  if (!input.complete()) return;
  struct Group {
    std::int64_t with = 0;
    std::vector<const LintModule*> without;
  };
  std::map<std::string, Group> groups;
  for (const LintModule& module : input.modules) {
    if (!is_expert(module) || !is_quantised(module.storage)) continue;
    Group& group = groups[group_of(input, module)];
    module.part(input_scale_suffix(module)) != nullptr ? static_cast<void>(++group.with) : group.without.push_back(&module);
  }
  for (const auto& [name, group] : groups) {
    if (group.with == 0) continue;
    for (const LintModule* module : group.without) {
      report.add("input-scale-missing", {fmt::format("tensor '{}{}'", module->name, input_scale_suffix(*module)),
                                         fmt::format("missing in layer {}, expert {}; {} experts like it have one",
                                                     module->layer.value_or(-1), *module->expert, group.with),
                                         module->layer, module->expert});
    }
  }
}

void check_expert_formats(const LintInput& input, LintReport& report) {
  std::map<std::pair<std::int64_t, std::string_view>, std::map<Storage, std::vector<const LintModule*>>> layers;
  for (const LintModule& module : input.modules) {
    if (is_expert(module) && module.layer && module.data() != nullptr)
      layers[{*module.layer, module.leaf()}][module.storage].push_back(&module);
  }
  for (const auto& [key, storages] : layers) {
    if (storages.size() < 2) continue;
    const auto usual =
        std::max_element(storages.begin(), storages.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    for (const auto& [storage, modules] : storages) {
      if (storage == usual->first) continue;
      for (const LintModule* module : modules)
        report.add("mixed-expert-formats", {where(*module->data()),
                                            fmt::format("{}; {} experts of layer {} are {}", storage_name(storage), usual->second.size(),
                                                        key.first, storage_name(usual->first)),
                                            module->layer, module->expert});
    }
  }
}

void check_shared_experts(const LintInput& input, LintReport& report) {
  std::map<std::int64_t, const LintModule*> quantised;  // the first quantised routed expert of each layer
  for (const LintModule& module : input.modules) {
    if (is_expert(module) && module.layer && is_quantised(module.storage)) quantised.emplace(*module.layer, &module);
  }
  for (const LintModule& module : input.modules) {
    if (module.leaf() != "up_proj" || !module.parent().ends_with(".shared_experts") || module.storage != Storage::plain) continue;
    const auto routed = quantised.find(module.layer.value_or(-1));
    if (routed == quantised.end()) continue;
    const LintTensor& own = *module.data();
    const LintTensor& other = *routed->second->data();
    report.add("shared-expert-unquantised", {where(own),
                                             fmt::format("{} {}; a routed expert is {} {}, {}", name(own.dtype), own.shape.to_string(),
                                                         name(other.dtype), other.shape.to_string(), storage_name(routed->second->storage)),
                                             module.layer});
  }
}

}  // namespace reckoner::lint
