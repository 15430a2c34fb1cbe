#include "base/toml.h"

#include <fmt/format.h>

#define TOML_EXCEPTIONS 0
// The library asserts what its next lines check and report ("[=]"): text from outside must not end the program. With NDEBUG it would take
// those assertions for granted instead.
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/toml.h>

#include <boost/json.hpp>
#include <sstream>

#include "base/mapped_file.h"

namespace reckoner {
namespace {

namespace json = boost::json;

json::value to_json(const toml::node& node);

json::value to_json(const toml::array& array) {
  json::array result;
  result.reserve(array.size());
  for (const toml::node& element : array) result.push_back(to_json(element));
  return result;
}

json::value to_json(const toml::table& table) {
  json::object result;
  for (const auto& [key, value] : table) result.emplace(json::string_view(key.str()), to_json(value));
  return result;
}

// Dates and times.
template <class Time>
json::value to_text(const Time& time) {
  std::ostringstream text;
  text << time;
  return json::value(json::string(text.str()));
}

json::value to_json(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return to_json(*node.as_table());
    case toml::node_type::array:
      return to_json(*node.as_array());
    case toml::node_type::string:
      return json::value(json::string(node.as_string()->get()));
    case toml::node_type::integer:
      return json::value(node.as_integer()->get());
    case toml::node_type::floating_point:
      return json::value(node.as_floating_point()->get());
    case toml::node_type::boolean:
      return json::value(node.as_boolean()->get());
    case toml::node_type::date:
      return to_text(node.as_date()->get());
    case toml::node_type::time:
      return to_text(node.as_time()->get());
    case toml::node_type::date_time:
      return to_text(node.as_date_time()->get());
    case toml::node_type::none:
      break;
  }
  return nullptr;
}

}  // namespace

Result<JsonDocument> parse_toml(std::string_view text, std::string_view where) {
  if (static_cast<std::int64_t>(text.size()) > kMaxTomlBytes)
    return Error{fmt::format("{}: expected at most {} bytes of TOML, found {}", where, kMaxTomlBytes, text.size())};
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Error{fmt::format("{}: line {}, column {}: {}", where, error.source().begin.line, error.source().begin.column,
                             std::string_view(error.description())),
                 "this is not valid TOML: correct it there"};
  }
  return JsonDocument(std::make_shared<const json::value>(to_json(parsed.table())), std::make_shared<const std::string>(where));
}

Result<JsonDocument> read_toml_file(const std::filesystem::path& path) {
  return parse_toml(TRY(read_text_file(path, kMaxTomlBytes)), path.string());
}

}  // namespace reckoner
