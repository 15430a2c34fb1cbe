#include "server/requests/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <limits>

#include "base/edit_distance.h"

namespace reckoner {
namespace {

namespace json = boost::json;

Error unknown_field(const JsonNode& node, std::string_view key, std::span<const KnownField> known) {
  const auto nearer = [&](const KnownField& a, const KnownField& b) { return edit_distance(key, a.name) < edit_distance(key, b.name); };
  const bool comparable = !known.empty() && key.size() <= 64;
  const auto nearest = comparable ? std::min_element(known.begin(), known.end(), nearer) : known.end();
  if (nearest != known.end() && edit_distance(key, nearest->name) <= 3)
    return node.error("not known here", fmt::format("did you mean '{}'?", nearest->name));
  return node.error("not known here", "leave it out");
}

// What asks for nothing.
bool is_neutral(const json::value& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.get_bool();
  if (value.is_number()) return value.to_number<double>() == 0 || value.to_number<double>() == 1;
  if (value.is_string()) return value.get_string().empty();
  return value.is_array() ? value.get_array().empty() : value.get_object().empty();
}

}  // namespace

Result<JsonDocument> parse_body(std::string_view body) {
  Result<JsonDocument> document = parse_json(body, "request body");
  if (!document) return Error{document.error().what, "send one JSON object in UTF-8"};
  if (!document->root().is_object()) return Error{document->root().unexpected("an object").what, "send one JSON object"};
  return document;
}

Status check_fields(const JsonNode& object, std::span<const KnownField> known) {
  for (const auto& [key, node] : TRY(object.as_object())) {
    const auto found = std::find_if(known.begin(), known.end(), [&, &name = key](const KnownField& field) { return field.name == name; });
    if (found == known.end()) return unknown_field(node, key, known);
    if (found->use == FieldUse::absent && !is_neutral(node.value()))
      return node.error(fmt::format("{} is not supported here", node.describe()), "leave the field out");
  }
  return {};
}

Result<JsonNode> required_field(const JsonNode& object, std::string_view key) {
  const std::optional<JsonNode> field = TRY(object.optional(key));
  if (!field) return Error{object.required(key).error().what, "add the field"};
  return *field;
}

Result<std::string> required_text(const JsonNode& object, std::string_view key) {
  const JsonNode field = TRY(required_field(object, key));
  return field.as_string();
}

Result<bool> read_flag(const JsonNode& object, std::string_view key, bool fallback) {
  const std::optional<JsonNode> field = TRY(object.optional(key));
  return field ? field->as_bool() : Result<bool>(fallback);
}

Result<std::int64_t> read_integer(const JsonNode& object, std::string_view key, std::int64_t min, std::int64_t max, std::int64_t fallback) {
  const std::optional<JsonNode> field = TRY(object.optional(key));
  return field ? field->as_int64(min, max) : Result<std::int64_t>(fallback);
}

Result<double> read_number(const JsonNode& object, std::string_view key, double min, double max, double fallback) {
  const std::optional<JsonNode> field = TRY(object.optional(key));
  if (!field) return fallback;
  const double number = TRY(field->as_float());
  if (number < min || number > max) return field->unexpected(fmt::format("a number from {} to {}", min, max));
  return number;
}

Result<std::string> read_text(const JsonNode& object, std::string_view key, std::string fallback) {
  const std::optional<JsonNode> field = TRY(object.optional(key));
  return field ? field->as_string() : Result<std::string>(std::move(fallback));
}

Result<std::vector<std::int64_t>> read_integers(const JsonNode& object, std::string_view key, std::int64_t min, std::int64_t max,
                                                std::size_t at_most) {
  std::vector<std::int64_t> numbers;
  const std::optional<JsonNode> field = TRY(object.optional(key));
  if (!field) return numbers;
  const std::vector<JsonNode> elements = TRY(field->as_array());
  if (elements.size() > at_most) return field->unexpected(fmt::format("at most {} numbers", at_most));
  for (const JsonNode& element : elements) numbers.push_back(TRY(element.as_int64(min, max)));
  return numbers;
}

std::string json_text(const JsonNode& node) { return json::serialize(node.value()); }

Error not_one_of(const JsonNode& node, std::span<const std::string_view> allowed) {
  return node.unexpected(fmt::format("one of '{}'", fmt::join(allowed, "', '")));
}

}  // namespace reckoner
