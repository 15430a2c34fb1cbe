// Reading a request's JSON: every field is known, read or refused; nothing is ignored in silence.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace reckoner {

enum class FieldUse : std::uint8_t {
  read,    // has a meaning here
  inert,   // accepted without effect: bookkeeping of the client's, or a hint to somebody else's servers
  absent,  // would change the answer, and is not supported: only null, false, 0, 1 (for factors), or empty is accepted
};

struct KnownField {
  std::string_view name;
  FieldUse use = FieldUse::read;
};

Result<JsonDocument> parse_body(std::string_view body);

// Errors: `object` is none; a field that is not known (with the nearest one that is); an unsupported one that asks for something.
Status check_fields(const JsonNode& object, std::span<const KnownField> known);

// Like JsonNode's, with a sentence for the client.
Result<JsonNode> required_field(const JsonNode& object, std::string_view key);

Result<std::string> required_text(const JsonNode& object, std::string_view key);

// Optional fields of one type; `fallback` when absent or null.
Result<bool> read_flag(const JsonNode& object, std::string_view key, bool fallback);
Result<std::int64_t> read_integer(const JsonNode& object, std::string_view key, std::int64_t min, std::int64_t max, std::int64_t fallback);
Result<double> read_number(const JsonNode& object, std::string_view key, double min, double max, double fallback);
Result<std::string> read_text(const JsonNode& object, std::string_view key, std::string fallback);
Result<std::vector<std::int64_t>> read_integers(const JsonNode& object, std::string_view key, std::int64_t min, std::int64_t max,
                                                std::size_t at_most);

// The value as JSON text, keys in the request's order.
std::string json_text(const JsonNode& node);

// "expected one of 'a', 'b', found ..."
Error not_one_of(const JsonNode& node, std::span<const std::string_view> allowed);

}  // namespace reckoner
