#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <cmath>
#include <unordered_set>

#include "base/mapped_file.h"

namespace reckoner {
namespace {

namespace json = boost::json;

// Walks a document without keeping it: finds syntax errors, and keys that an object has twice (which Boost's own parser accepts,
// keeping the last). Scalars are of no interest.
struct KeyChecker {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  std::vector<std::unordered_set<std::string>> open_objects;
  std::string key;         // the one being read
  bool duplicate = false;  // the walk stopped because `key` occurs twice

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(std::size_t, json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    open_objects.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) {
    open_objects.pop_back();
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code& error) {
    key.append(part.data(), part.size());
    if (!open_objects.back().insert(key).second) {
      duplicate = true;
      error = json::error::syntax;
      return false;
    }
    key.clear();
    return true;
  }
  bool on_string_part(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_string(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, json::error_code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, json::error_code&) { return true; }
  bool on_double(double, json::string_view, json::error_code&) { return true; }
  bool on_bool(bool, json::error_code&) { return true; }
  bool on_null(json::error_code&) { return true; }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

json::parse_options options() {
  json::parse_options result;
  result.max_depth = kMaxJsonDepth;
  return result;
}

// "line 3, column 14" of text[offset], both from 1, columns in bytes.
std::string position(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("line {}, column {}", line, before.size() - line_start + 1);
}

// At most 60 bytes of a text in quotes, control characters escaped, characters whole.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMaxBytes = 60;
  std::size_t length = std::min(text.size(), kMaxBytes);
  while (length < text.size() && length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0u) == 0x80u) --length;
  std::string result = json::serialize(json::string(json::string_view(text.data(), length)));
  if (length < text.size()) result.insert(result.size() - 1, "...");
  return result;
}

Status check_document(std::string_view text, std::string_view where) {
  json::basic_parser<KeyChecker> parser(options());
  json::error_code error;
  const std::size_t consumed = parser.write_some(false, text.data(), text.size(), error);
  const KeyChecker& checker = parser.handler();
  if (checker.duplicate)
    return Error{fmt::format("{}: {}: the key {} occurs twice in one object", where, position(text, consumed), in_quotes(checker.key)),
                 "remove one of the two"};
  if (!error && consumed < text.size()) error = json::error::extra_data;
  if (!error) return {};
  return Error{fmt::format("{}: {}: {}", where, position(text, consumed), error.message()),
               "this is not valid JSON: download or correct it"};
}

}  // namespace

Result<JsonDocument> parse_json(std::string_view text, std::string_view where) {
  if (static_cast<std::int64_t>(text.size()) > kMaxJsonBytes)
    return Error{fmt::format("{}: expected at most {} bytes of JSON, found {}", where, kMaxJsonBytes, text.size())};
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return Error{fmt::format("{}: expected JSON, found nothing", where), "download or write the file again"};
  try {
    TRY(check_document(text, where));
    json::error_code error;
    json::value value = json::parse(json::string_view(text.data(), text.size()), error, {}, options());
    if (error) return Error{fmt::format("{}: {}", where, error.message())};
    return JsonDocument(std::make_shared<const json::value>(std::move(value)), std::make_shared<const std::string>(where));
  } catch (const std::exception& failure) {  // Boost.JSON throws for lack of memory and for strings beyond its limits
    return Error{fmt::format("{}: {}", where, failure.what())};
  }
}

Result<JsonDocument> read_json_file(const std::filesystem::path& path) {
  const std::string text = TRY(read_text_file(path, kMaxJsonBytes));
  if (is_lfs_pointer(std::as_bytes(std::span(text))))
    return Error{fmt::format("{}: expected JSON, found a Git LFS pointer: the file's content was not downloaded", path.string()),
                 "run `git lfs pull` in that folder"};
  return parse_json(text, path.string());
}

JsonDocument::JsonDocument(std::shared_ptr<const json::value> value, std::shared_ptr<const std::string> where)
    : value_(std::move(value)), where_(std::move(where)) {}

JsonNode JsonDocument::root() const { return {value_.get(), where_, ""}; }

JsonNode::JsonNode(const json::value* value, std::shared_ptr<const std::string> where, std::string path)
    : value_(value), where_(std::move(where)), path_(std::move(path)) {}

JsonNode JsonNode::child(const json::value* value, std::string_view key) const {
  return {value, where_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key)};
}

Result<std::optional<JsonNode>> JsonNode::optional(std::string_view key) const {
  const json::object* object = value_->if_object();
  if (object == nullptr) return unexpected("an object");
  const json::value* member = object->if_contains(json::string_view(key.data(), key.size()));
  if (member == nullptr || member->is_null()) return std::optional<JsonNode>{};
  return std::optional<JsonNode>{child(member, key)};
}

Result<JsonNode> JsonNode::required(std::string_view key) const {
  const std::optional<JsonNode> member = TRY(optional(key));
  if (!member) return child(value_, key).error("missing", "add the field, or download the file again");
  return *member;
}

Result<std::int64_t> JsonNode::as_int64(std::int64_t min, std::int64_t max) const {
  const auto expected = [&] { return fmt::format("an integer from {} to {}", min, max); };
  std::int64_t number = 0;
  if (const std::int64_t* integer = value_->if_int64()) {
    number = *integer;
  } else if (const double* real = value_->if_double(); real != nullptr && std::trunc(*real) == *real && std::abs(*real) < 0x1p63) {
    number = static_cast<std::int64_t>(*real);
  } else {
    return unexpected(expected());  // unsigned values are above the largest std::int64_t
  }
  if (number < min || number > max) return unexpected(expected());
  return number;
}

Result<double> JsonNode::as_float() const {
  if (!value_->is_number()) return unexpected("a number");
  const auto number = value_->to_number<double>();
  if (!std::isfinite(number)) return unexpected("a finite number");
  return number;
}

Result<std::string> JsonNode::as_string() const {
  if (!value_->is_string()) return unexpected("a string");
  return std::string(value_->get_string());
}

Result<bool> JsonNode::as_bool() const {
  if (!value_->is_bool()) return unexpected("true or false");
  return value_->get_bool();
}

Result<std::vector<JsonNode>> JsonNode::as_array() const {
  const json::array* array = value_->if_array();
  if (array == nullptr) return unexpected("an array");
  std::vector<JsonNode> elements;
  elements.reserve(array->size());
  for (const json::value& element : *array) elements.push_back({&element, where_, fmt::format("{}[{}]", path_, elements.size())});
  return elements;
}

Result<std::vector<std::pair<std::string, JsonNode>>> JsonNode::as_object() const {
  const json::object* object = value_->if_object();
  if (object == nullptr) return unexpected("an object");
  std::vector<std::pair<std::string, JsonNode>> members;
  members.reserve(object->size());
  for (const auto& member : *object) {
    const std::string key(member.key());
    members.emplace_back(key, child(&member.value(), key));
  }
  return members;
}

bool JsonNode::is_array() const { return value_->is_array(); }
bool JsonNode::is_object() const { return value_->is_object(); }
bool JsonNode::is_string() const { return value_->is_string(); }
bool JsonNode::is_null() const { return value_->is_null(); }

Error JsonNode::error(std::string_view text, std::string remedy) const {
  if (path_.empty()) return {fmt::format("{}: {}", *where_, text), std::move(remedy)};
  return {fmt::format("{}: field '{}': {}", *where_, path_, text), std::move(remedy)};
}

Error JsonNode::unexpected(std::string_view expected) const { return error(fmt::format("expected {}, found {}", expected, describe())); }

std::string JsonNode::describe() const {
  switch (value_->kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return value_->get_bool() ? "true" : "false";
    case json::kind::int64:
      return fmt::format("the number {}", value_->get_int64());
    case json::kind::uint64:
      return fmt::format("the number {}", value_->get_uint64());
    case json::kind::double_:
      return fmt::format("the number {}", value_->get_double());
    case json::kind::string:
      return fmt::format("the string {}", in_quotes(std::string_view(value_->get_string())));
    case json::kind::array:
      return fmt::format("an array of {}", value_->get_array().size());
    case json::kind::object:
      return fmt::format("an object of {}", value_->get_object().size());
  }
  return "nothing";
}

JsonNode JsonNode::renamed(std::string_view name) const {
  return {value_, std::make_shared<const std::string>(fmt::format("{}: {}", *where_, name)), ""};
}

}  // namespace reckoner
