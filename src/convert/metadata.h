// The JSON files that make a folder of tensors a checkpoint.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "convert/plan.h"

namespace reckoner {

// config.json of the source with its quantization_config replaced; all other fields stay, in their order.
std::string quantised_config(const JsonNode& source_config, const QuantisePlan& plan);
// hf_quant_config.json, which belongs to ModelOpt's formats.
std::optional<std::string> hf_quant_config(const QuantisePlan& plan);
// model.safetensors.index.json; nothing where one file holds everything.
std::optional<std::string> index_json(const QuantisePlan& plan);
// The record of what is being done, by which a second run knows its own work.
std::string plan_record(const Model& model, const QuantisePlan& plan);

}  // namespace reckoner
