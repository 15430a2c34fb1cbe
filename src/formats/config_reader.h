// ConfigReader: typed fields of config.json, remembering which were read. Private to the readers of this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/settings.h"

namespace reckoner {

inline constexpr std::int64_t kMaxDim = 1 << 24;       // of any width or count: products of three stay within 64 bits
inline constexpr std::int64_t kMaxLayers = 10'000;     // decoder layers
inline constexpr std::int64_t kMaxTokens = 1LL << 30;  // context length

class ConfigReader {
 public:
  explicit ConfigReader(JsonNode object) : object_(std::move(object)) {}

  // The field, or nothing when it is absent or null.
  Result<std::optional<JsonNode>> field(std::string_view key);
  Result<JsonNode> required(std::string_view key);

  // These leave `value` as it is when the field is absent. Integers are in [min, max].
  Status read(std::string_view key, std::int64_t& value, std::int64_t min, std::int64_t max);
  Status read(std::string_view key, bool& value);
  Status read(std::string_view key, std::string& value);
  // A finite number in (0, max].
  Status read_positive(std::string_view key, double& value, double max);

  const JsonNode& object() const { return object_; }
  const std::set<std::string, std::less<>>& read_keys() const { return read_keys_; }

 private:
  JsonNode object_;
  std::set<std::string, std::less<>> read_keys_;
};

// Parts of read_model_config that stand in files of their own.
struct ModelConfig;
Status read_rope(ConfigReader& reader, ModelConfig& config);         // after attention
Status read_layer_kinds(ConfigReader& reader, ModelConfig& config);  // after indexer and experts

}  // namespace reckoner
