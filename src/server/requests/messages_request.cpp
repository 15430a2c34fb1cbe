// Anthropic's messages become the messages of a chat.
#include "server/requests/messages_request.h"

#include <fmt/format.h>

#include <boost/json.hpp>

namespace reckoner {
namespace {

namespace json = boost::json;

constexpr KnownField kFields[] = {{"model"},
                                  {"messages"},
                                  {"system"},
                                  {"max_tokens"},
                                  {"stop_sequences"},
                                  {"stream"},
                                  {"temperature"},
                                  {"top_p"},
                                  {"top_k"},
                                  {"tools"},
                                  {"tool_choice"},
                                  {"thinking"},
                                  {"metadata", FieldUse::inert},
                                  {"service_tier", FieldUse::inert},
                                  {"cache_control", FieldUse::inert},
                                  {"context_management", FieldUse::inert},
                                  {"output_config"},
                                  {"container", FieldUse::absent},
                                  {"mcp_servers", FieldUse::absent}};

void add_line(std::string& text, const std::string& more) {
  if (!text.empty()) text += '\n';
  text += more;
}

// A string, or text blocks.
Result<std::string> read_plain(const JsonNode& node) {
  if (node.is_string()) return node.as_string();
  std::string text;
  const std::vector<JsonNode> blocks = TRY(node.as_array());
  for (const JsonNode& block : blocks) {
    const JsonNode type = TRY(required_field(block, "type"));
    const std::string type_name = TRY(type.as_string());
    if (type_name != "text") return type.error(fmt::format("'{}' is not supported here: this model reads text", type_name), "send text");
    add_line(text, TRY(required_text(block, "text")));
  }
  return text;
}

// What one message's blocks come to: tool results are messages of their own, before what the user says beside them.
struct Blocks {
  std::vector<ChatMessage> results;
  ChatMessage message;
};

Status read_tool_use(const JsonNode& block, ChatMessage& message) {
  ChatToolCall call;
  call.id = TRY(required_text(block, "id"));
  call.name = TRY(required_text(block, "name"));
  const JsonNode input = TRY(required_field(block, "input"));
  if (!input.is_object()) return input.unexpected("an object");
  call.arguments = json_text(input);
  message.tool_calls.push_back(std::move(call));
  return {};
}

Status read_tool_result(const JsonNode& block, Blocks& blocks) {
  ChatMessage result{.role = "tool"};
  result.tool_call_id = TRY(required_text(block, "tool_use_id"));
  const std::optional<JsonNode> content = TRY(block.optional("content"));
  if (content) result.content = TRY(read_plain(*content));
  blocks.results.push_back(std::move(result));
  return {};
}

Status read_block(const JsonNode& block, Blocks& blocks) {
  const JsonNode type = TRY(required_field(block, "type"));
  const std::string name = TRY(type.as_string());
  if (name == "text") {
    add_line(blocks.message.content, TRY(required_text(block, "text")));
  } else if (name == "thinking") {
    add_line(blocks.message.reasoning, TRY(required_text(block, "thinking")));
  } else if (name == "tool_use") {
    return read_tool_use(block, blocks.message);
  } else if (name == "tool_result") {
    return read_tool_result(block, blocks);
  } else if (name != "redacted_thinking") {
    return type.error(fmt::format("blocks of type '{}' are not supported here: this model reads text", name), "send text");
  }
  return {};
}

Status read_message(const JsonNode& node, std::vector<ChatMessage>& messages) {
  static constexpr std::string_view kRoles[] = {"user", "assistant"};
  const JsonNode role = TRY(required_field(node, "role"));
  Blocks blocks;
  blocks.message.role = TRY(role.as_string());
  const bool is_user = blocks.message.role == "user";
  if (!is_user && blocks.message.role != "assistant") return not_one_of(role, kRoles);
  const JsonNode content = TRY(required_field(node, "content"));
  if (content.is_string()) {
    blocks.message.content = TRY(content.as_string());
  } else {
    const std::vector<JsonNode> nodes = TRY(content.as_array());
    for (const JsonNode& block : nodes) TRY(read_block(block, blocks));
  }
  if (is_user && !blocks.message.tool_calls.empty()) return content.error("only an assistant uses tools", "move tool_use to its message");
  const bool has_results = !blocks.results.empty();
  for (ChatMessage& result : blocks.results) messages.push_back(std::move(result));
  if (!has_results || !blocks.message.content.empty()) messages.push_back(std::move(blocks.message));
  return {};
}

Status read_all_messages(const JsonNode& root, ChatRequest& request) {
  const std::optional<JsonNode> system = TRY(root.optional("system"));
  if (system) {
    const std::string text = TRY(read_plain(*system));
    request.messages.push_back({.role = "system", .content = text});
  }
  const JsonNode field = TRY(required_field(root, "messages"));
  const std::vector<JsonNode> nodes = TRY(field.as_array());
  if (nodes.empty()) return field.error("expected at least one message, found none", "add the user's message");
  for (const JsonNode& node : nodes) TRY(read_message(node, request.messages));
  return {};
}

// {"name", "description", "input_schema"} becomes a function as in OpenAI's API, which templates know.
Status read_message_tools(const JsonNode& root, ChatRequest& request) {
  const std::optional<JsonNode> field = TRY(root.optional("tools"));
  if (!field) return {};
  json::array tools;
  const std::vector<JsonNode> nodes = TRY(field->as_array());
  for (const JsonNode& node : nodes) {
    const std::string type = TRY(read_text(node, "type", "custom"));
    if (type != "custom")
      return node.error(fmt::format("tools of type '{}' are not supported here", type), "describe the tool by a schema");
    ToolSignature tool;
    tool.name = TRY(required_text(node, "name"));
    const JsonNode schema = TRY(required_field(node, "input_schema"));
    if (!schema.is_object()) return schema.unexpected("a JSON schema, which is an object");
    tool.parameters_json = json_text(schema);
    const std::string description = TRY(read_text(node, "description", ""));
    json::object function{{"name", tool.name}, {"description", description}, {"parameters", schema.value()}};
    tools.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
    request.tools.push_back(std::move(tool));
  }
  if (!tools.empty()) request.tools_json = json::serialize(tools);
  return {};
}

Status read_message_tool_choice(const JsonNode& root, ChatRequest& request) {
  static constexpr std::string_view kTypes[] = {"auto", "any", "tool", "none"};
  const std::optional<JsonNode> field = TRY(root.optional("tool_choice"));
  if (!field) return {};
  const JsonNode type = TRY(required_field(*field, "type"));
  const std::string word = TRY(type.as_string());
  const bool one_call = TRY(read_flag(*field, "disable_parallel_tool_use", false));
  request.parallel_tool_calls = !one_call;
  if (word == "auto") return {};
  if (word == "none") return request.tool_choice.kind = ToolChoice::Kind::none, Status();
  if (word == "any") return request.tool_choice.kind = ToolChoice::Kind::required, Status();
  if (word != "tool") return not_one_of(type, kTypes);
  request.tool_choice.kind = ToolChoice::Kind::named;
  request.tool_choice.name = TRY(required_text(*field, "name"));
  return {};
}

Status read_thinking(const JsonNode& root, ChatRequest& request) {
  static constexpr std::string_view kTypes[] = {"enabled", "disabled", "adaptive"};
  const std::optional<JsonNode> field = TRY(root.optional("thinking"));
  if (!field) return {};
  const JsonNode type = TRY(required_field(*field, "type"));
  const std::string word = TRY(type.as_string());
  if (word != "enabled" && word != "disabled" && word != "adaptive") return not_one_of(type, kTypes);
  request.template_kwargs_json = word == "disabled" ? R"({"enable_thinking":false})" : R"({"enable_thinking":true})";
  return {};
}

// output_config: {"format": {"type": "json_schema", "schema": ...}}; its effort is a hint.
Status read_output_config(const JsonNode& root, ChatRequest& request) {
  static constexpr KnownField kConfigFields[] = {{"format"}, {"effort", FieldUse::inert}};
  const std::optional<JsonNode> config = TRY(root.optional("output_config"));
  if (!config) return {};
  TRY(check_fields(*config, kConfigFields));
  const std::optional<JsonNode> format = TRY(config->optional("format"));
  if (!format) return {};
  static constexpr std::string_view kTypes[] = {"json_schema"};
  const JsonNode type = TRY(required_field(*format, "type"));
  const std::string word = TRY(type.as_string());
  if (word != "json_schema") return not_one_of(type, kTypes);
  const JsonNode schema = TRY(required_field(*format, "schema"));
  if (!schema.is_object()) return schema.unexpected("a JSON schema, which is an object");
  request.format.kind = AnswerFormat::Kind::json_schema;
  request.format.definition = json_text(schema);
  request.format.field = "output_config.format";
  return {};
}

}  // namespace

Result<ChatRequest> read_messages_request(std::string_view body, const RequestLimits& limits, MessagesUse use) {
  const JsonDocument document = TRY(parse_body(body));
  const JsonNode root = document.root();
  TRY(check_fields(root, kFields));
  ChatRequest request;
  request.model = TRY(read_text(root, "model", ""));
  TRY(read_all_messages(root, request));
  TRY(read_message_tools(root, request));
  TRY(read_message_tool_choice(root, request));
  TRY(read_thinking(root, request));
  TRY(read_output_config(root, request));
  request.options = TRY(read_options(root, limits));
  request.options.stop = TRY(read_stop(root, "stop_sequences"));
  if (use == MessagesUse::answer) TRY(required_field(root, "max_tokens"));
  request.options.max_tokens = TRY(read_integer(root, "max_tokens", 1, std::int64_t{1} << 40, 0));
  return request;
}

}  // namespace reckoner
