#include "formats/config_reader.h"

#include <fmt/format.h>

namespace reckoner {

Result<std::optional<JsonNode>> ConfigReader::field(std::string_view key) {
  read_keys_.emplace(key);
  return object_.optional(key);
}

Result<JsonNode> ConfigReader::required(std::string_view key) {
  read_keys_.emplace(key);
  return object_.required(key);
}

Status ConfigReader::read(std::string_view key, std::int64_t& value, std::int64_t min, std::int64_t max) {
  if (const std::optional<JsonNode> node = TRY(field(key))) value = TRY(node->as_int64(min, max));
  return {};
}

Status ConfigReader::read(std::string_view key, bool& value) {
  if (const std::optional<JsonNode> node = TRY(field(key))) value = TRY(node->as_bool());
  return {};
}

Status ConfigReader::read(std::string_view key, std::string& value) {
  if (const std::optional<JsonNode> node = TRY(field(key))) value = TRY(node->as_string());
  return {};
}

Status ConfigReader::read_positive(std::string_view key, double& value, double max) {
  const std::optional<JsonNode> node = TRY(field(key));
  if (!node) return {};
  value = TRY(node->as_float());
  if (value <= 0 || value > max) return node->unexpected(fmt::format("a number above 0 and at most {}", max));
  return {};
}

}  // namespace reckoner
