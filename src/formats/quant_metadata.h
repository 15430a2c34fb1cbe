// What a checkpoint's files say about its quantisation. The tensors that are present decide what a weight is; this is what they
// are checked against.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/module_patterns.h"
#include "formats/settings.h"

namespace reckoner {

struct QuantMetadata {
  std::string method;                // "modelopt", "compressed-tensors", "fp8"; empty: not quantised
  std::string algorithm;             // ModelOpt's quant_algo: "NVFP4", "FP8", "MIXED_PRECISION"; empty when not given
  int group_size = 0;                // elements that share one block scale; 0 when not given
  std::vector<std::string> exclude;  // patterns of modules ("model.layers.3.self_attn*") that stay unquantised, as the method spells them
  ModulePatterns excluded_modules;   // the same, to ask
  ModulePatterns targets;  // of compressed-tensors, and of ModelOpt's quantized_layers: all others stay unquantised; empty: all are meant
  std::string format;      // of compressed-tensors: "nvfp4-pack-quantized"; empty when not given
  std::string scale_fmt;   // of FP8: "ue8m0" claims that scales are powers of two; empty when not given
  std::string kv_cache;    // "FP8"; empty: none asked for
  std::string producer;    // "modelopt 0.46.0"; empty when not given
  std::string source;      // file (and field) that this comes from; empty when not quantised
  std::vector<Setting> settings;  // what took effect, and what the files disagree about
};

// Reads hf_quant_config.json, which may be absent, and the quantization_config of config.json, which may lack one; hf_quant_config.json
// wins where they disagree. Errors: malformed JSON, a method that is not supported, an NVFP4 group size other than 16.
Result<QuantMetadata> read_quant_metadata(const std::filesystem::path& folder);
// The same from parsed documents. `config`: config.json's root.
Result<QuantMetadata> parse_quant_metadata(const JsonNode& config, const std::optional<JsonNode>& hf_quant_config);

// One block of metadata on its own: hf_quant_config.json's root, a quantization_config.
Result<QuantMetadata> parse_hf_quant_config(const JsonNode& root);
Result<QuantMetadata> parse_quantization_config(const JsonNode& node);

// True when the list of unquantised modules covers the module (a tensor's name without ".weight").
bool excluded(const QuantMetadata& quant, std::string_view module);

}  // namespace reckoner
