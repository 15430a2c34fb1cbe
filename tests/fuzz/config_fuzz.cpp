// Any text as config.json, generation_config.json and hf_quant_config.json, separated by zero bytes: values or errors, never a crash.
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "formats/model_config.h"
#include "formats/quant_metadata.h"

namespace {

std::optional<reckoner::JsonNode> root_of(const reckoner::Result<reckoner::JsonDocument>& document) {
  return document ? std::optional(document->root()) : std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto next = [&] {
    const std::string_view part = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : rest.size());
    return reckoner::parse_json(part, "fuzz");
  };
  const reckoner::Result<reckoner::JsonDocument> config = next();
  const reckoner::Result<reckoner::JsonDocument> generation = next();
  const reckoner::Result<reckoner::JsonDocument> quant = next();
  if (generation) static_cast<void>(reckoner::parse_generation_config(generation->root()));
  if (!config) return 0;
  if (const auto metadata = reckoner::parse_quant_metadata(config->root(), root_of(quant))) {
    static_cast<void>(reckoner::excluded(*metadata, "model.layers.3.mlp.experts.7.down_proj"));
  }
  const reckoner::Result<reckoner::ModelConfig> model = reckoner::parse_model_config(config->root(), root_of(generation));
  if (!model) return 0;
  CHECK(static_cast<std::int64_t>(model->mlp_kinds.size()) == model->num_hidden_layers);
  CHECK(model->indexer_kinds.empty() == !model->is_sparse_attention());
  CHECK(model->rope.theta > 1);
  return 0;
}
