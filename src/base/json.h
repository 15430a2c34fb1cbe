// JSON that comes from outside: a reader whose every error names the file, the field, what was expected and what was found.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace reckoner {

// One value in a document; a cheap view that must not outlive it. Errors read like
//   models/x/config.json: field 'rope_parameters.rope_theta': expected a number, found the string "abc"
class JsonNode {
 public:
  // The member `key` of this object. A member that is null counts as absent. Errors: this is no object; absent (required only).
  Result<JsonNode> required(std::string_view key) const;
  Result<std::optional<JsonNode>> optional(std::string_view key) const;

  // An integer in [min, max]; 1e6 and 8000000.0 are integers too.
  Result<std::int64_t> as_int64(std::int64_t min, std::int64_t max) const;
  // A finite number.
  Result<double> as_float() const;
  Result<std::string> as_string() const;
  Result<bool> as_bool() const;
  // The elements of an array; the members of an object in the order of the file, null members included.
  Result<std::vector<JsonNode>> as_array() const;
  Result<std::vector<std::pair<std::string, JsonNode>>> as_object() const;

  bool is_array() const;
  bool is_object() const;
  bool is_string() const;
  bool is_null() const;

  // "<where>: field '<path>': <text>", for checks that go beyond types.
  Error error(std::string_view text, std::string remedy = {}) const;
  // "<where>: field '<path>': expected <expected>, found <this value>"
  Error unexpected(std::string_view expected) const;
  // This value as messages show it: `the string "abc"`, `the number 3`, `an array of 4`.
  std::string describe() const;
  // The same value, called "<where>: <name>" in messages, with paths that start here.
  JsonNode renamed(std::string_view name) const;

  const std::string& where() const { return *where_; }
  const std::string& path() const { return path_; }
  const boost::json::value& value() const { return *value_; }

 private:
  friend class JsonDocument;
  JsonNode(const boost::json::value* value, std::shared_ptr<const std::string> where, std::string path);
  JsonNode child(const boost::json::value* value, std::string_view key) const;

  const boost::json::value* value_;
  std::shared_ptr<const std::string> where_;
  std::string path_;
};

// A parsed document. Copies share the values.
class JsonDocument {
 public:
  JsonNode root() const;

 private:
  friend Result<JsonDocument> parse_json(std::string_view text, std::string_view where);
  friend Result<JsonDocument> parse_toml(std::string_view text, std::string_view where);
  JsonDocument(std::shared_ptr<const boost::json::value> value, std::shared_ptr<const std::string> where);

  std::shared_ptr<const boost::json::value> value_;
  std::shared_ptr<const std::string> where_;
};

inline constexpr std::int64_t kMaxJsonBytes = std::int64_t{256} << 20;
inline constexpr int kMaxJsonDepth = 64;

// Parses strict JSON. `where` starts every message: a file's path or "request body". Errors give line and column: bad syntax, bad
// UTF-8, nesting deeper than kMaxJsonDepth, a key that an object has twice; and a text longer than kMaxJsonBytes.
Result<JsonDocument> parse_json(std::string_view text, std::string_view where);
Result<JsonDocument> read_json_file(const std::filesystem::path& path);

}  // namespace reckoner
