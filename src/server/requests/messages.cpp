// The messages of a chat request, and how a template gets them.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "server/requests/chat_request.h"

namespace reckoner {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxMessages = 16384;
constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

constexpr KnownField kMessageFields[] = {{"role"},
                                         {"content"},
                                         {"name"},
                                         {"tool_calls"},
                                         {"tool_call_id"},
                                         {"reasoning_content"},
                                         {"reasoning"},
                                         {"refusal", FieldUse::inert},
                                         {"annotations", FieldUse::inert},
                                         {"id", FieldUse::inert},
                                         {"parsed", FieldUse::inert},  // OpenAI's clients add it to a message they return
                                         {"audio", FieldUse::absent},
                                         {"function_call", FieldUse::absent}};

Result<std::string> read_part(const JsonNode& part) {
  const JsonNode type_node = TRY(required_field(part, "type"));
  const std::string type = TRY(type_node.as_string());
  if (type != "text" && type != "refusal")
    return type_node.error(fmt::format("parts of type '{}' are not supported: this model reads text", type), "send text parts only");
  return required_text(part, type);
}

// A string, or text parts, which become lines.
Result<std::string> read_content(const JsonNode& message, bool may_be_absent) {
  const std::optional<JsonNode> field = TRY(message.optional("content"));
  if (!field && may_be_absent) return std::string();
  if (!field) return Error{message.required("content").error().what, "add the message's text"};
  if (field->is_string()) return field->as_string();
  if (!field->is_array()) return field->unexpected("a string or an array of parts");
  std::string content;
  for (const JsonNode& part : TRY(field->as_array())) {
    if (!content.empty()) content += '\n';
    content += TRY(read_part(part));
  }
  return content;
}

Result<ChatToolCall> read_tool_call(const JsonNode& node) {
  const std::string type = TRY(read_text(node, "type", "function"));
  if (type != "function") return node.error(fmt::format("calls of type '{}' are not supported", type), "use type 'function'");
  const JsonNode function = TRY(required_field(node, "function"));
  ChatToolCall call;
  call.id = TRY(read_text(node, "id", ""));
  call.name = TRY(required_text(function, "name"));
  const JsonNode arguments = TRY(required_field(function, "arguments"));
  call.arguments = json_text(arguments);
  if (!arguments.is_object()) call.arguments = TRY(arguments.as_string());
  if (call.arguments.find_first_not_of(" \t\r\n") == std::string::npos) call.arguments = "{}";
  const Result<JsonDocument> parsed = parse_json(call.arguments, "arguments");
  if (!parsed || !parsed->root().is_object())
    return arguments.error("expected the JSON text of an object", "send the arguments as the model gave them");
  return call;
}

Result<ChatMessage> read_message(const JsonNode& node) {
  TRY(check_fields(node, kMessageFields));
  const JsonNode role = TRY(required_field(node, "role"));
  ChatMessage message{.role = TRY(role.as_string())};
  if (std::find(std::begin(kRoles), std::end(kRoles), message.role) == std::end(kRoles)) return not_one_of(role, kRoles);
  const bool is_assistant = message.role == "assistant";
  if (message.role == "developer") message.role = "system";
  message.content = TRY(read_content(node, is_assistant));
  message.name = TRY(read_text(node, "name", ""));
  message.tool_call_id = TRY(read_text(node, "tool_call_id", ""));
  const std::string other_name = TRY(read_text(node, "reasoning", ""));
  message.reasoning = TRY(read_text(node, "reasoning_content", other_name));
  if (const std::optional<JsonNode> calls = TRY(node.optional("tool_calls"))) {
    if (!is_assistant) return calls->error("only an assistant calls tools", "leave it out");
    for (const JsonNode& call : TRY(calls->as_array())) message.tool_calls.push_back(TRY(read_tool_call(call)));
  }
  return message;
}

json::object tool_call_object(const ChatToolCall& call) {
  return {{"id", call.id}, {"type", "function"}, {"function", json::object{{"name", call.name}, {"arguments", call.arguments}}}};
}

}  // namespace

Result<std::vector<ChatMessage>> read_messages(const JsonNode& array) {
  const std::vector<JsonNode> nodes = TRY(array.as_array());
  if (nodes.empty()) return array.error("expected at least one message, found none", "add the user's message");
  if (nodes.size() > kMaxMessages) return array.unexpected(fmt::format("at most {} messages", kMaxMessages));
  std::vector<ChatMessage> messages;
  for (const JsonNode& node : nodes) messages.push_back(TRY(read_message(node)));
  return messages;
}

std::string messages_json(const std::vector<ChatMessage>& messages) {
  json::array array;
  for (const ChatMessage& message : messages) {
    json::object object{{"role", message.role}, {"content", message.content}};
    if (!message.name.empty()) object["name"] = message.name;
    if (!message.reasoning.empty()) object["reasoning_content"] = message.reasoning;
    if (!message.tool_call_id.empty()) object["tool_call_id"] = message.tool_call_id;
    json::array calls;
    for (const ChatToolCall& call : message.tool_calls) calls.push_back(tool_call_object(call));
    if (!calls.empty()) object["tool_calls"] = std::move(calls);
    array.push_back(std::move(object));
  }
  return json::serialize(array);
}

}  // namespace reckoner
