// Scales of whole tensors.
#include <fmt/format.h>

#include <cfloat>
#include <cmath>

#include "diagnose/lint/checks.h"

namespace reckoner::lint {
namespace {

// The scale of the whole weight: the suffix under which it is stored differs.
const LintTensor* tensor_scale(const LintModule& module) {
  for (const std::string_view suffix : {".weight_scale_2", ".weight_global_scale"}) {
    if (const LintTensor* scale = module.part(suffix)) return scale;
  }
  return module.storage == Storage::fp8_tensor ? module.part(".weight_scale") : nullptr;
}

bool is_input_scale(std::string_view name) { return name.ends_with(".input_scale") || name.ends_with(".input_global_scale"); }

// Scales of keys and values of each layer, under whichever module they stand.
std::map<std::int64_t, const LintTensor*> by_layer(const LintInput& input, std::string_view suffix) {
  std::map<std::int64_t, const LintTensor*> scales;
  for (const auto& [tensor, value] : input.scalars) {
    if (tensor->name.ends_with(suffix)) scales.emplace(number_after(tensor->name, "layers.").value_or(-1), tensor);
  }
  return scales;
}

bool is_mla(const LintInput& input) {
  if (input.model) return input.model->is_mla();
  const std::optional<JsonNode> config = input.text_config();
  if (!config) return false;
  const Result<std::optional<JsonNode>> rank = config->optional("kv_lora_rank");
  return rank && rank->has_value();
}

}  // namespace

void check_scalar_scales(const LintInput& input, LintReport& report) {
  for (const auto& [tensor, value] : input.scalars) {
    const std::optional<std::int64_t> layer = number_after(tensor->name, "layers.");
    const std::optional<std::int64_t> expert = number_after(tensor->name, ".experts.");
    if (!(value > 0) || std::isinf(value)) {
      report.add(is_input_scale(tensor->name) ? "input-scale-invalid" : "scale-invalid",
                 {where(*tensor),
                  fmt::format("expected a finite scale above zero, found {}", std::isnan(value) ? "NaN" : fmt::format("{}", value)), layer,
                  expert});
    } else if (value < FLT_MIN) {
      report.add("scale-denormal", {where(*tensor), fmt::format("{}", value), layer, expert});
    }
  }
}

void check_gate_and_up(const LintInput& input, LintReport& report) {
  for (const LintModule& gate : input.modules) {
    if (gate.leaf() != "gate_proj") continue;
    const LintModule* up = input.find_module(fmt::format("{}.up_proj", gate.parent()));
    if (up == nullptr) continue;
    const std::optional<float> first = input.scalar(tensor_scale(gate));
    const std::optional<float> second = input.scalar(tensor_scale(*up));
    if (!first || !second || *first == *second || std::isnan(*first) || std::isnan(*second)) continue;
    const std::string place =
        gate.expert ? fmt::format("layer {}, expert {}", gate.layer.value_or(-1), *gate.expert) : std::string(gate.parent());
    report.add("gate-up-scales-differ",
               {where(*tensor_scale(gate)), fmt::format("{}: gate {}, up {}", place, *first, *second), gate.layer, gate.expert});
  }
}

void check_kv_scales(const LintInput& input, LintReport& report) {
  if (!is_mla(input)) return;
  const std::map<std::int64_t, const LintTensor*> keys = by_layer(input, ".k_scale");
  const std::map<std::int64_t, const LintTensor*> values = by_layer(input, ".v_scale");
  for (const auto& [layer, key] : keys) {
    const auto value = values.find(layer);
    if (value == values.end()) {
      report.add("kv-scales-differ", {where(*key), fmt::format("layer {} has a k_scale and no v_scale", layer), layer});
    } else if (input.scalars.at(key) != input.scalars.at(value->second)) {
      report.add("kv-scales-differ",
                 {where(*key),
                  fmt::format("layer {}: k_scale {}, v_scale {}", layer, input.scalars.at(key), input.scalars.at(value->second)), layer});
    }
  }
}

}  // namespace reckoner::lint
