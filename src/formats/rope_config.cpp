// Rotary embedding settings, from either of their two published spellings.
#include <fmt/format.h>

#include <array>

#include "formats/config_reader.h"
#include "formats/model_config.h"

namespace reckoner {
namespace {

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;

// The places that can state a rope value, by precedence: rope_parameters (transformers 5), rope_scaling (4), the top level (4).
struct RopePlaces {
  std::optional<JsonNode> parameters;
  std::optional<JsonNode> scaling;
  JsonNode top;

  // The object that holds all but theta; the top level when there is none.
  const JsonNode& main() const { return parameters ? *parameters : scaling ? *scaling : top; }
  std::vector<JsonNode> all() const {
    std::vector<JsonNode> places;
    if (parameters) places.push_back(*parameters);
    if (scaling) places.push_back(*scaling);
    places.push_back(top);
    return places;
  }
};

Result<RopePlaces> find_places(ConfigReader& reader) {
  const std::optional<JsonNode> parameters = TRY(reader.field("rope_parameters"));
  const std::optional<JsonNode> scaling = TRY(reader.field("rope_scaling"));
  RopePlaces places{.parameters = parameters, .scaling = scaling, .top = reader.object()};
  for (const std::optional<JsonNode>* place : {&places.parameters, &places.scaling}) {
    if (*place && !(*place)->is_object()) return (*place)->unexpected("an object");
  }
  return places;
}

// theta is never defaulted: a wrong base reads well at short context and breaks at long. Two different ones are an error for the same
// reason.
Status read_theta(ConfigReader& reader, const RopePlaces& places, RopeConfig& rope, std::vector<Setting>& settings) {
  static_cast<void>(TRY(reader.field("rope_theta")));
  std::optional<JsonNode> chosen;
  for (const JsonNode& place : places.all()) {
    const std::optional<JsonNode> node = TRY(place.optional("rope_theta"));
    if (!node) continue;
    const double theta = TRY(node->as_float());
    if (theta <= 1 || theta > kMaxTheta) return node->unexpected(fmt::format("a number above 1 and at most {}", kMaxTheta));
    if (chosen && theta != rope.theta)
      return node->error(fmt::format("contradicts field '{}': {} and {}", chosen->path(), theta, rope.theta),
                         "make the two equal, or remove the wrong one");
    if (chosen) continue;
    chosen = node;
    rope.theta = theta;
  }
  if (!chosen)
    return reader.object().error("field 'rope_theta' is missing: neither in rope_parameters, nor in rope_scaling, nor at the top level",
                                 "add the value that the model was trained with; there is no safe default");
  settings.push_back({"rope theta", fmt::format("{}", rope.theta), chosen->path(), ""});
  return {};
}

bool is_supported_type(std::string_view type) { return type == "default" || type == "yarn" || type == "deepseek_yarn"; }

// rope_type, or type in older files. The two objects may both be there; then they must agree.
Status read_type(const RopePlaces& places, RopeConfig& rope) {
  std::optional<JsonNode> chosen;
  for (const std::optional<JsonNode>* place : {&places.parameters, &places.scaling}) {
    if (!*place) continue;
    for (const std::string_view key : {"rope_type", "type"}) {
      const std::optional<JsonNode> node = TRY((*place)->optional(key));
      if (!node) continue;
      const std::string type = TRY(node->as_string());
      if (!is_supported_type(type)) return node->unexpected("one of the supported types \"default\", \"yarn\", \"deepseek_yarn\"");
      if (chosen && type != rope.type)
        return node->error(fmt::format("contradicts field '{}': \"{}\" and \"{}\"", chosen->path(), type, rope.type), "make the two equal");
      if (chosen) continue;
      chosen = node;
      rope.type = type;
    }
  }
  if (const JsonNode& main = places.main(); !chosen && (places.parameters || places.scaling) && TRY(main.optional("factor")))
    return main.error("has a factor but no rope_type", "add the rope_type, or remove the factor");
  return {};
}

Status read_number(const JsonNode& object, std::string_view key, double& value, double min, double max) {
  const std::optional<JsonNode> node = TRY(object.optional(key));
  if (!node) return {};
  value = TRY(node->as_float());
  if (value < min || value > max) return node->unexpected(fmt::format("a number from {} to {}", min, max));
  return {};
}

Status read_yarn(const JsonNode& object, RopeConfig& rope, std::vector<Setting>& settings) {
  static_cast<void>(TRY(object.required("factor")));
  TRY(read_number(object, "factor", rope.factor, 1, kMaxFactor));
  TRY(read_number(object, "beta_fast", rope.beta_fast, 1e-6, kMaxFactor));
  TRY(read_number(object, "beta_slow", rope.beta_slow, 1e-6, kMaxFactor));
  TRY(read_number(object, "mscale", rope.mscale, 0, kMaxFactor));
  TRY(read_number(object, "mscale_all_dim", rope.mscale_all_dim, 0, kMaxFactor));
  const JsonNode original = TRY(object.required("original_max_position_embeddings"));
  rope.original_max_position_embeddings = TRY(original.as_int64(1, kMaxTokens));
  if (rope.beta_fast < rope.beta_slow)
    return object.error(fmt::format("expected beta_fast >= beta_slow, found {} and {}", rope.beta_fast, rope.beta_slow));
  if (const std::optional<JsonNode> node = TRY(object.optional("attention_factor")))
    return node->error("is not supported", "state the attention scale with mscale and mscale_all_dim");
  settings.push_back({"rope scaling",
                      fmt::format("{} factor {}, original context {}, beta {}/{}, mscale {}/{}", rope.type, rope.factor,
                                  rope.original_max_position_embeddings, rope.beta_fast, rope.beta_slow, rope.mscale, rope.mscale_all_dim),
                      object.path(), "applies at every context length"});
  return {};
}

// Which dimensions make a pair. GLM-5 indexers interleave even where the file does not say so; DeepSeek's do not.
Status read_layout(ConfigReader& reader, ModelConfig& config) {
  struct Layout {
    std::string_view key;
    bool& value;
    bool used;
  };
  config.rope.interleave = config.is_mla();
  config.rope.indexer_interleave = config.model_type == "glm_moe_dsa";
  const std::array<Layout, 2> layouts = {Layout{"rope_interleave", config.rope.interleave, true},
                                         Layout{"indexer_rope_interleave", config.rope.indexer_interleave, config.is_sparse_attention()}};
  for (const Layout& layout : layouts) {
    const bool given = TRY(reader.field(layout.key)).has_value();
    TRY(reader.read(layout.key, layout.value));
    if (!layout.used) continue;
    config.settings.push_back({std::string(layout.key), layout.value ? "true" : "false", given ? std::string(layout.key) : "default",
                               given ? "" : fmt::format("not in the file; this is what {} models use", config.model_type)});
  }
  return {};
}

Status check_rotated_dims(const ModelConfig& config, const JsonNode& where) {
  if (config.is_mla() || config.head_dim == 0) return {};  // MLA: checked with qk_rope_head_dim
  const double rotated = static_cast<double>(config.head_dim) * config.rope.partial_rotary_factor;
  const auto whole = static_cast<std::int64_t>(rotated);
  if (whole >= 2 && whole % 2 == 0 && static_cast<double>(whole) == rotated) return {};
  return where.error(fmt::format("expected an even number of rotated dimensions, found head_dim {} x partial_rotary_factor {}",
                                 config.head_dim, config.rope.partial_rotary_factor));
}

}  // namespace

Status read_rope(ConfigReader& reader, ModelConfig& config) {
  const RopePlaces places = TRY(find_places(reader));
  RopeConfig& rope = config.rope;
  TRY(read_theta(reader, places, rope, config.settings));
  TRY(read_type(places, rope));
  TRY(read_number(reader.object(), "partial_rotary_factor", rope.partial_rotary_factor, 1e-3, 1));
  TRY(read_number(places.main(), "partial_rotary_factor", rope.partial_rotary_factor, 1e-3, 1));
  static_cast<void>(TRY(reader.field("partial_rotary_factor")));
  if (rope.is_yarn()) TRY(read_yarn(places.main(), rope, config.settings));
  TRY(read_layout(reader, config));
  return check_rotated_dims(config, reader.object());
}

}  // namespace reckoner
