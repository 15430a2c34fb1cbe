#include "convert/metadata.h"

#include <boost/json.hpp>
#include <system_error>

#include "convert/exclude.h"
#include "convert/json_text.h"

namespace reckoner {
namespace {

namespace json = boost::json;

constexpr const char* kQuantisation = "quantization_config";
constexpr const char* kVersion = RECKONER_VERSION;

json::string_view view(std::string_view text) { return {text.data(), text.size()}; }

json::array exclude_list(const QuantisePlan& plan, std::string (*spelling)(const UnquantisedPart&)) {
  json::array list;
  for (const UnquantisedPart& part : unquantised_parts(plan.quantised, plan.unquantised)) list.push_back(json::string(spelling(part)));
  return list;
}

json::object producer() { return {{"name", "reckoner"}, {"version", kVersion}}; }

// What ModelOpt's two files say alike.
struct ModelOptTerms {
  const char* algorithm;
  std::int64_t group;
};
ModelOptTerms modelopt_terms(QuantFormat format) {
  const FormatInfo& of = info(format);
  return {format == QuantFormat::nvfp4 ? "NVFP4" : "MXFP4", of.block_cols};
}

bool is_modelopt(QuantFormat format) { return format == QuantFormat::nvfp4 || format == QuantFormat::mxfp4; }

json::object modelopt_config(const QuantisePlan& plan) {
  const auto [algorithm, group] = modelopt_terms(plan.options.format);
  const json::object four_bits{{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", group}};
  json::object groups{{"weights", four_bits}, {"targets", json::array{"Linear"}}};
  if (plan.options.format == QuantFormat::nvfp4) groups["input_activations"] = four_bits;
  return {{"config_groups", json::object{{"group_0", std::move(groups)}}},
          {"ignore", exclude_list(plan, as_glob)},
          {"quant_algo", algorithm},
          {"group_size", group},
          {"producer", producer()},
          {"quant_method", "modelopt"}};
}

json::object fp8_block_config(const QuantisePlan& plan) {
  json::array modules;  // one by one: other readers compare these names, or look for them inside others
  for (const std::string& module : plan.unquantised) modules.push_back(json::string(module));
  return {{"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"modules_to_not_convert", std::move(modules)},
          {"quant_method", "fp8"},
          {"weight_block_size", json::array{128, 128}}};
}

json::object compressed_tensors_config(const QuantisePlan& plan) {
  const bool fp8 = plan.options.format == QuantFormat::fp8_channel;
  json::object weights{{"actorder", nullptr},
                       {"block_structure", nullptr},
                       {"dynamic", false},
                       {"group_size", fp8 ? json::value(nullptr) : json::value(info(plan.options.format).block_cols)},
                       {"num_bits", fp8 ? 8 : 4},
                       {"observer", "minmax"},
                       {"observer_kwargs", json::object()},
                       {"strategy", fp8 ? "channel" : "group"},
                       {"symmetric", true},
                       {"type", fp8 ? "float" : "int"}};
  json::value activations = nullptr;
  if (fp8) {
    activations = json::object{
        {"actorder", nullptr}, {"block_structure", nullptr},        {"dynamic", true},     {"group_size", nullptr}, {"num_bits", 8},
        {"observer", nullptr}, {"observer_kwargs", json::object()}, {"strategy", "token"}, {"symmetric", true},     {"type", "float"}};
  }
  json::object group{{"input_activations", std::move(activations)},
                     {"output_activations", nullptr},
                     {"targets", json::array{"Linear"}},
                     {"weights", std::move(weights)}};
  return {{"config_groups", json::object{{"group_0", std::move(group)}}},
          {"format", fp8 ? "float-quantized" : "pack-quantized"},
          {"ignore", exclude_list(plan, as_expression)},
          {"kv_cache_scheme", nullptr},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"}};
}

json::object quantization_config(const QuantisePlan& plan) {
  if (is_modelopt(plan.options.format)) return modelopt_config(plan);
  return plan.options.format == QuantFormat::fp8_block ? fp8_block_config(plan) : compressed_tensors_config(plan);
}

// `object` without the key, the others in their order (erase() would move the last one into its place).
json::object without(const json::object& object, std::string_view key) {
  json::object rest;
  for (const auto& member : object) {
    if (member.key() != view(key)) rest.insert(member);
  }
  return rest;
}

template <class Visit>
void for_each_part(const QuantisePlan& plan, const OutputShard& shard, Visit&& visit) {
  for (std::size_t unit = shard.first_unit; unit < shard.first_unit + shard.units; ++unit) {
    if (plan.units[unit].copied != nullptr) visit(plan.units[unit].copy);
    for (const OutputMatrix& matrix : plan.units[unit].matrices) {
      for (const OutputPart& part : matrix.parts) visit(part);
    }
  }
}

}  // namespace

std::string quantised_config(const JsonNode& source_config, const QuantisePlan& plan) {
  json::object config = without(source_config.value().get_object(), kQuantisation);
  // Multimodal models may say it again beside the text model, for the weights that they had.
  if (const auto text = config.find("text_config"); text != config.end() && text->value().is_object())
    text->value() = without(text->value().get_object(), kQuantisation);
  config[kQuantisation] = quantization_config(plan);
  return json_text(config);
}

std::optional<std::string> hf_quant_config(const QuantisePlan& plan) {
  if (!is_modelopt(plan.options.format)) return std::nullopt;
  const auto [algorithm, group] = modelopt_terms(plan.options.format);
  return json_text(json::object{{"producer", producer()},
                                {"quantization",
                                 {{"quant_algo", algorithm},
                                  {"kv_cache_quant_algo", nullptr},
                                  {"group_size", group},
                                  {"exclude_modules", exclude_list(plan, as_glob)}}}});
}

std::optional<std::string> index_json(const QuantisePlan& plan) {
  if (plan.shards.size() == 1) return std::nullopt;
  json::object map;
  for (const OutputShard& shard : plan.shards) for_each_part(plan, shard, [&](const OutputPart& part) { map[part.name] = shard.file; });
  return json_text(json::object{{"metadata", {{"total_size", plan.output_bytes}}}, {"weight_map", std::move(map)}});
}

std::string plan_record(const Model& model, const QuantisePlan& plan) {
  json::array source;
  for (const SafetensorsFile& file : model.checkpoint->files()) {
    std::error_code error;
    const auto changed = std::filesystem::last_write_time(file.path(), error).time_since_epoch().count();
    source.push_back(json::object{{"file", file.path().filename().string()},
                                  {"bytes", file.file().size_bytes()},
                                  {"changed_ns", static_cast<std::int64_t>(changed)}});
  }
  json::array shards;
  for (const OutputShard& shard : plan.shards) shards.push_back(json::object{{"file", shard.file}, {"bytes", shard.bytes}});
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(model.checkpoint->folder(), error);
  return json_text(json::object{{"reckoner", kVersion},
                                {"source", folder.string()},
                                {"source_files", std::move(source)},
                                {"format", view(quantise_name(plan.options.format))},
                                {"modules", view(module_set_name(plan.options.modules))},
                                {"shard_bytes", plan.options.shard_bytes},
                                {"shards", std::move(shards)}});
}

}  // namespace reckoner
