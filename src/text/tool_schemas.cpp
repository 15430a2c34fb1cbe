#include "text/tool_schemas.h"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <exception>

#include "base/json.h"
#include "text/json_text.h"

namespace reckoner {
namespace {

namespace json = boost::json;

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kMaxScalarBytes = 64;  // a longer number or word is text
constexpr int kMaxSchemas = 256;             // visited for one argument: references can multiply

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

JsonTypes type_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return JsonTypes::null;
    case json::kind::bool_:
      return JsonTypes::boolean;
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return JsonTypes::number;
    case json::kind::string:
      return JsonTypes::string;
    case json::kind::array:
      return JsonTypes::array;
    case json::kind::object:
      return JsonTypes::object;
  }
  return JsonTypes::none;
}

JsonTypes type_named(const json::value& name) {
  const json::string* const text = name.if_string();
  if (text == nullptr) return JsonTypes::none;
  if (*text == "string") return JsonTypes::string;
  if (*text == "number" || *text == "integer") return JsonTypes::number;
  if (*text == "boolean") return JsonTypes::boolean;
  if (*text == "object") return JsonTypes::object;
  if (*text == "array") return JsonTypes::array;
  if (*text == "null") return JsonTypes::null;
  return JsonTypes::none;
}

// Narrows `types` to `found`; a schema that leaves nothing says nothing.
void narrow(JsonTypes& types, JsonTypes found) {
  if (allows(types, found)) types = types & found;
}

class TypeFinder {
 public:
  explicit TypeFinder(const json::value& root) : root_(root) {}

  JsonTypes types(const json::value& schema) {
    const json::object* const object = schema.if_object();
    if (object == nullptr || ++visited_ > kMaxSchemas) return JsonTypes::any;
    JsonTypes found = JsonTypes::any;
    if (const json::value* type = object->if_contains("type")) narrow(found, named_types(*type));
    if (const json::value* value = object->if_contains("const")) narrow(found, type_of(*value));
    if (const json::value* values = object->if_contains("enum")) narrow(found, types_of(*values));
    if (const json::value* target = referred(*object)) narrow(found, types(*target));
    for (const char* key : {"anyOf", "oneOf"}) {
      if (const json::value* choices = object->if_contains(key)) narrow(found, types_of_any(*choices));
    }
    if (const json::value* all = object->if_contains("allOf"); all != nullptr && all->is_array()) {
      for (const json::value& part : all->get_array()) narrow(found, types(part));
    }
    if (found == JsonTypes::any && object->contains("properties")) return JsonTypes::object;
    if (found == JsonTypes::any && object->contains("items")) return JsonTypes::array;
    return found;
  }

 private:
  static JsonTypes named_types(const json::value& type) {
    JsonTypes found = type_named(type);
    if (type.is_array()) {
      for (const json::value& name : type.get_array()) found = found | type_named(name);
    }
    return found;
  }
  static JsonTypes types_of(const json::value& values) {
    JsonTypes found = JsonTypes::none;
    if (values.is_array()) {
      for (const json::value& value : values.get_array()) found = found | type_of(value);
    }
    return found;
  }
  JsonTypes types_of_any(const json::value& choices) {
    JsonTypes found = JsonTypes::none;
    if (choices.is_array()) {
      for (const json::value& choice : choices.get_array()) found = found | types(choice);
    }
    return found;
  }
  const json::value* referred(const json::object& schema) const {
    const json::value* const reference = schema.if_contains("$ref");
    if (reference == nullptr || !reference->is_string() || !reference->get_string().starts_with('#')) return nullptr;
    json::error_code error;
    return root_.find_pointer(json::string_view(reference->get_string()).substr(1), error);
  }

  const json::value& root_;
  int visited_ = 0;
};

// The tool's name and the schema of its arguments, in whichever of the three forms.
struct Tool {
  std::string name;
  json::value parameters;
};
Tool read_tool(const json::value& tool) {
  const json::object* object = tool.if_object();
  if (object == nullptr) return {};
  if (const json::value* function = object->if_contains("function"); function != nullptr && function->is_object())
    object = &function->get_object();
  const json::value* const name = object->if_contains("name");
  if (name == nullptr || !name->is_string()) return {};
  Tool read{.name = std::string(name->get_string()), .parameters = nullptr};
  for (const char* key : {"parameters", "input_schema"}) {
    if (const json::value* parameters = object->if_contains(key)) read.parameters = *parameters;
  }
  return read;
}

bool all_of(std::string_view text, std::string_view characters) { return text.find_first_not_of(characters) == std::string_view::npos; }

}  // namespace

ToolSchemas ToolSchemas::parse(std::string_view tools_json) {
  ToolSchemas schemas;
  if (trimmed(tools_json).empty()) return schemas;
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::error_code error;
  json::value tools;
  try {
    tools = json::parse(json::string_view(tools_json.data(), tools_json.size()), error, {}, options);
  } catch (const std::exception&) {  // for lack of memory
    schemas.given_ = true;
    return schemas;
  }
  schemas.given_ = error || !(tools.is_null() || (tools.is_array() && tools.get_array().empty()));
  if (error || !tools.is_array()) return schemas;
  for (const json::value& value : tools.get_array()) {
    Tool tool = read_tool(value);
    if (!tool.name.empty()) schemas.parameters_.insert_or_assign(std::move(tool.name), std::move(tool.parameters));
  }
  return schemas;
}

JsonTypes ToolSchemas::argument_types(std::string_view tool, std::string_view argument) const {
  const auto found = parameters_.find(tool);
  if (found == parameters_.end()) return JsonTypes::string;
  const json::object* const parameters = found->second.if_object();
  if (parameters == nullptr) return JsonTypes::any;
  const json::value* const properties = parameters->if_contains("properties");
  const json::value* schema = nullptr;
  if (properties != nullptr && properties->is_object())
    schema = properties->get_object().if_contains(json::string_view(argument.data(), argument.size()));
  if (schema == nullptr) schema = parameters->if_contains("additionalProperties");
  return schema == nullptr ? JsonTypes::any : TypeFinder(found->second).types(*schema);
}

bool may_become_json(JsonTypes types, std::string_view raw) {
  const std::size_t first = raw.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return raw.size() <= kMaxScalarBytes;
  const std::string_view text = raw.substr(first);
  if (text.front() == '{') return allows(types, JsonTypes::object);
  if (text.front() == '[') return allows(types, JsonTypes::array);
  if (raw.size() > kMaxScalarBytes) return false;
  const std::string_view word = trimmed(text);
  if (allows(types, JsonTypes::null) && std::string_view("null").starts_with(word)) return true;
  if (allows(types, JsonTypes::boolean) && (std::string_view("true").starts_with(word) || std::string_view("false").starts_with(word)))
    return true;
  return allows(types, JsonTypes::number) && all_of(word, "+-.0123456789eE");
}

std::string argument_json(JsonTypes types, std::string_view raw, Strings strings) {
  const std::string_view text = trimmed(raw);
  const bool may_be_text = strings == Strings::raw && allows(types, JsonTypes::string);
  if (!may_be_text && allows(types, JsonTypes::boolean) && text == "True") return "true";
  if (!may_be_text && allows(types, JsonTypes::boolean) && text == "False") return "false";
  if (!may_be_text && allows(types, JsonTypes::null) && text == "None") return "null";
  const bool fits = may_be_text ? may_become_json(types, raw) : true;
  return fits && is_json(text) ? std::string(text) : json_quoted(raw);
}

}  // namespace reckoner
