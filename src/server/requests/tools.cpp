// Tools, the choice among them, and the form of the answer.
#include <fmt/format.h>

#include <algorithm>

#include "server/requests/chat_request.h"

namespace reckoner {
namespace {

constexpr std::size_t kMaxTools = 1024;

Result<ToolSignature> read_tool(const JsonNode& node) {
  const JsonNode type = TRY(required_field(node, "type"));
  const std::string type_name = TRY(type.as_string());
  if (type_name != "function") return type.error("only functions can be tools here", "use type 'function'");
  const JsonNode function = TRY(required_field(node, "function"));
  const JsonNode name = TRY(required_field(function, "name"));
  ToolSignature tool{.name = TRY(name.as_string()), .parameters_json = ""};
  if (tool.name.empty() || tool.name.size() > 256) return name.unexpected("a name of 1 to 256 bytes");
  if (const std::optional<JsonNode> parameters = TRY(function.optional("parameters"))) {
    if (!parameters->is_object()) return parameters->unexpected("a JSON schema, which is an object");
    tool.parameters_json = json_text(*parameters);
  }
  TRY(read_text(function, "description", ""));
  return tool;
}

bool has_tool(const ChatRequest& request, const std::string& name) {
  return std::any_of(request.tools.begin(), request.tools.end(), [&](const ToolSignature& tool) { return tool.name == name; });
}

Result<AnswerFormat> read_json_schema(const JsonNode& format) {
  const JsonNode described = TRY(required_field(format, "json_schema"));
  const JsonNode schema = TRY(required_field(described, "schema"));
  if (!schema.is_object()) return schema.unexpected("a JSON schema, which is an object");
  return AnswerFormat{.kind = AnswerFormat::Kind::json_schema, .definition = json_text(schema), .field = "response_format"};
}

// response_format: {"type": ...}
Result<AnswerFormat> read_response_format(const JsonNode& format) {
  static constexpr std::string_view kTypes[] = {"text", "json_object", "json_schema", "regex", "grammar"};
  const JsonNode type_node = TRY(required_field(format, "type"));
  const std::string type = TRY(type_node.as_string());
  if (type == "text") return AnswerFormat{};
  if (type == "json_object") return AnswerFormat{.kind = AnswerFormat::Kind::json_object, .field = "response_format"};
  if (type == "json_schema") return read_json_schema(format);
  if (type == "regex" || type == "grammar") {
    const std::string definition = TRY(required_text(format, type));
    const auto kind = type == "regex" ? AnswerFormat::Kind::regex : AnswerFormat::Kind::grammar;
    return AnswerFormat{.kind = kind, .definition = definition, .field = "response_format"};
  }
  return not_one_of(type_node, kTypes);
}

Result<std::vector<std::string>> read_choices(const JsonNode& node) {
  const std::vector<JsonNode> nodes = TRY(node.as_array());
  std::vector<std::string> choices;
  for (const JsonNode& one : nodes) {
    choices.push_back(TRY(one.as_string()));
    if (choices.back().empty()) return one.unexpected("a text that is not empty");
  }
  if (choices.empty()) return node.unexpected("at least one text");
  return choices;
}

constexpr KnownField kStructuredFields[] = {{"json"}, {"json_object"}, {"regex"}, {"grammar"}, {"choice"}};

// structured_outputs: {"json": ...}, {"regex": ...}, {"grammar": ...} or {"choice": [...]}, vLLM's way to ask.
Result<AnswerFormat> read_structured_outputs(const JsonNode& node) {
  TRY(check_fields(node, kStructuredFields));
  AnswerFormat format{.field = "structured_outputs"};
  if (const std::optional<JsonNode> schema = TRY(node.optional("json"))) {
    format.kind = AnswerFormat::Kind::json_schema;
    format.definition = json_text(*schema);
    if (schema->is_string()) format.definition = TRY(schema->as_string());
  } else if (const std::optional<JsonNode> regex = TRY(node.optional("regex"))) {
    format.kind = AnswerFormat::Kind::regex;
    format.definition = TRY(regex->as_string());
  } else if (const std::optional<JsonNode> grammar = TRY(node.optional("grammar"))) {
    format.kind = AnswerFormat::Kind::grammar;
    format.definition = TRY(grammar->as_string());
  } else if (const std::optional<JsonNode> choice = TRY(node.optional("choice"))) {
    format.kind = AnswerFormat::Kind::choice;
    format.choices = TRY(read_choices(*choice));
  } else if (TRY(read_flag(node, "json_object", false))) {
    format.kind = AnswerFormat::Kind::json_object;
  }
  return format;
}

}  // namespace

Status read_tools(const JsonNode& root, ChatRequest& request) {
  const std::optional<JsonNode> field = TRY(root.optional("tools"));
  if (!field) return {};
  const std::vector<JsonNode> nodes = TRY(field->as_array());
  if (nodes.size() > kMaxTools) return field->unexpected(fmt::format("at most {} tools", kMaxTools));
  for (const JsonNode& node : nodes) {
    ToolSignature tool = TRY(read_tool(node));
    if (has_tool(request, tool.name)) return node.error(fmt::format("there are two tools '{}'", tool.name), "rename one of them");
    request.tools.push_back(std::move(tool));
  }
  if (!nodes.empty()) request.tools_json = json_text(*field);
  return {};
}

Result<ToolChoice> read_tool_choice(const JsonNode& root, const ChatRequest& request) {
  static constexpr std::string_view kChoices[] = {"none", "auto", "required"};
  const std::optional<JsonNode> field = TRY(root.optional("tool_choice"));
  if (!field) return ToolChoice{};
  if (field->is_object()) {
    const JsonNode function = TRY(required_field(*field, "function"));
    const JsonNode name = TRY(required_field(function, "name"));
    ToolChoice choice{.kind = ToolChoice::Kind::named, .name = TRY(name.as_string())};
    if (!has_tool(request, choice.name)) return name.error(fmt::format("there is no tool '{}'", choice.name), "name one of the tools");
    return choice;
  }
  if (!field->is_string()) return field->unexpected("a string or an object");
  const std::string word = TRY(field->as_string());
  if (word == "none") return ToolChoice{.kind = ToolChoice::Kind::none};
  if (word == "auto") return ToolChoice{};
  if (word != "required") return not_one_of(*field, kChoices);
  if (request.tools.empty()) return field->error("there are no tools to require", "add tools, or leave it out");
  return ToolChoice{.kind = ToolChoice::Kind::required};
}

Result<AnswerFormat> read_answer_format(const JsonNode& root) {
  const std::optional<JsonNode> format = TRY(root.optional("response_format"));
  const std::optional<JsonNode> structured = TRY(root.optional("structured_outputs"));
  if (format && structured) return structured->error("response_format says it already", "send one of the two");
  if (format) return read_response_format(*format);
  return structured ? read_structured_outputs(*structured) : Result<AnswerFormat>(AnswerFormat{});
}

}  // namespace reckoner
