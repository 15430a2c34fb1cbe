#include "server/requests/responses_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

namespace reckoner {
namespace {

namespace json = boost::json;

constexpr KnownField kFields[] = {{"model"},
                                  {"input"},
                                  {"instructions"},
                                  {"max_output_tokens"},
                                  {"temperature"},
                                  {"top_p"},
                                  {"top_k"},
                                  {"min_p"},
                                  {"repetition_penalty"},
                                  {"stream"},
                                  {"tools"},
                                  {"tool_choice"},
                                  {"parallel_tool_calls"},
                                  {"text"},
                                  {"reasoning"},
                                  {"truncation"},
                                  {"store", FieldUse::inert},
                                  {"metadata", FieldUse::inert},
                                  {"user", FieldUse::inert},
                                  {"include", FieldUse::inert},
                                  {"service_tier", FieldUse::inert},
                                  {"safety_identifier", FieldUse::inert},
                                  {"prompt_cache_key", FieldUse::inert},
                                  {"stream_options", FieldUse::inert},
                                  {"previous_response_id", FieldUse::absent},
                                  {"conversation", FieldUse::absent},
                                  {"background", FieldUse::absent},
                                  {"prompt", FieldUse::absent},
                                  {"max_tool_calls", FieldUse::absent},
                                  {"priority", FieldUse::absent},  // gateways add it, as 0
                                  {"top_logprobs", FieldUse::absent}};

// A string, or parts of type input_text and output_text.
Result<std::string> read_content(const JsonNode& node) {
  if (node.is_string()) return node.as_string();
  std::string text;
  const std::vector<JsonNode> parts = TRY(node.as_array());
  for (const JsonNode& part : parts) {
    const JsonNode type = TRY(required_field(part, "type"));
    const std::string name = TRY(type.as_string());
    if (name != "input_text" && name != "output_text" && name != "text" && name != "reasoning_text" && name != "summary_text")
      return type.error(fmt::format("parts of type '{}' are not supported here: this model reads text", name), "send text");
    if (!text.empty()) text += '\n';
    text += TRY(required_text(part, "text"));
  }
  return text;
}

Result<ChatMessage> read_message_item(const JsonNode& item) {
  static constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};
  const JsonNode role = TRY(required_field(item, "role"));
  ChatMessage message{.role = TRY(role.as_string())};
  if (std::find(std::begin(kRoles), std::end(kRoles), message.role) == std::end(kRoles)) return not_one_of(role, kRoles);
  if (message.role == "developer") message.role = "system";
  const JsonNode content = TRY(required_field(item, "content"));
  message.content = TRY(read_content(content));
  return message;
}

// Calls and reasoning belong to one assistant message, which the next item of another kind ends.
ChatMessage& assistant(std::vector<ChatMessage>& messages) {
  if (messages.empty() || messages.back().role != "assistant") messages.push_back({.role = "assistant"});
  return messages.back();
}

Status read_call_item(const JsonNode& item, std::vector<ChatMessage>& messages) {
  ChatToolCall call;
  call.id = TRY(required_text(item, "call_id"));
  call.name = TRY(required_text(item, "name"));
  const JsonNode arguments = TRY(required_field(item, "arguments"));
  call.arguments = TRY(arguments.as_string());
  const Result<JsonDocument> parsed = parse_json(call.arguments, "arguments");
  if (!parsed || !parsed->root().is_object())
    return arguments.error("expected the JSON text of an object", "send the arguments as the model gave them");
  assistant(messages).tool_calls.push_back(std::move(call));
  return {};
}

Status read_call_output_item(const JsonNode& item, std::vector<ChatMessage>& messages) {
  ChatMessage message{.role = "tool"};
  message.tool_call_id = TRY(required_text(item, "call_id"));
  const JsonNode output = TRY(required_field(item, "output"));
  message.content = TRY(read_content(output));
  messages.push_back(std::move(message));
  return {};
}

Status read_reasoning_item(const JsonNode& item, std::vector<ChatMessage>& messages) {
  const std::optional<JsonNode> content = TRY(item.optional("content"));
  if (content) assistant(messages).reasoning += TRY(read_content(*content));
  return {};
}

Status read_item(const JsonNode& item, std::vector<ChatMessage>& messages) {
  static constexpr std::string_view kTypes[] = {"message", "function_call", "function_call_output", "reasoning"};
  const std::string type = TRY(read_text(item, "type", "message"));
  if (type == "function_call") return read_call_item(item, messages);
  if (type == "function_call_output") return read_call_output_item(item, messages);
  if (type == "reasoning") return read_reasoning_item(item, messages);
  if (type != "message") return not_one_of(item.required("type").value(), kTypes);
  ChatMessage message = TRY(read_message_item(item));
  const bool joins = message.role == "assistant" && !messages.empty() && messages.back().role == "assistant" &&
                     messages.back().content.empty() && messages.back().tool_calls.empty();
  if (joins) {
    messages.back().content = std::move(message.content);
  } else {
    messages.push_back(std::move(message));
  }
  return {};
}

Status read_input(const JsonNode& root, ResponsesRequest& request) {
  request.instructions = TRY(read_text(root, "instructions", ""));
  std::vector<ChatMessage>& messages = request.chat.messages;
  if (!request.instructions.empty()) messages.push_back({.role = "system", .content = request.instructions});
  const JsonNode input = TRY(required_field(root, "input"));
  if (input.is_string()) {
    const std::string text = TRY(input.as_string());
    messages.push_back({.role = "user", .content = text});
    return {};
  }
  if (!input.is_array()) return input.unexpected("a string or an array of items");
  const std::vector<JsonNode> items = TRY(input.as_array());
  if (items.empty()) return input.error("expected at least one item, found none", "add the user's message");
  for (const JsonNode& item : items) TRY(read_item(item, messages));
  return {};
}

// Tools are flat here; templates know the nested form of chats.
Status read_flat_tools(const JsonNode& root, ResponsesRequest& request) {
  const std::optional<JsonNode> field = TRY(root.optional("tools"));
  if (!field) return {};
  request.tools_json = json_text(*field);
  json::array tools;
  const std::vector<JsonNode> nodes = TRY(field->as_array());
  for (const JsonNode& node : nodes) {
    const JsonNode type = TRY(required_field(node, "type"));
    const std::string type_name = TRY(type.as_string());
    if (type_name != "function") return type.error(fmt::format("tools of type '{}' are not supported here", type_name), "use functions");
    ToolSignature tool;
    tool.name = TRY(required_text(node, "name"));
    json::object function;  // in the request's order, which is what the model sees
    for (const auto& member : node.value().get_object()) {
      if (member.key() != "type" && member.key() != "strict") function[member.key()] = member.value();
    }
    if (const json::value* parameters = function.if_contains("parameters"); parameters != nullptr && parameters->is_object())
      tool.parameters_json = json::serialize(*parameters);
    tools.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
    request.chat.tools.push_back(std::move(tool));
  }
  if (!tools.empty()) request.chat.tools_json = json::serialize(tools);
  return {};
}

Status read_flat_tool_choice(const JsonNode& root, ChatRequest& chat) {
  const std::optional<JsonNode> field = TRY(root.optional("tool_choice"));
  if (!field || !field->is_object()) {
    chat.tool_choice = TRY(read_tool_choice(root, chat));
    return {};
  }
  chat.tool_choice.kind = ToolChoice::Kind::named;
  chat.tool_choice.name = TRY(required_text(*field, "name"));
  return {};
}

// text: {"format": {"type": "text"}} or {"type": "json_schema", "schema": ...}
Status read_text_format(const JsonNode& root, ChatRequest& chat) {
  static constexpr std::string_view kTypes[] = {"text", "json_object", "json_schema"};
  const std::optional<JsonNode> text = TRY(root.optional("text"));
  if (!text) return {};
  const std::optional<JsonNode> format = TRY(text->optional("format"));
  if (!format) return {};
  const JsonNode type = TRY(required_field(*format, "type"));
  const std::string name = TRY(type.as_string());
  if (name == "text") return {};
  if (name != "json_object" && name != "json_schema") return not_one_of(type, kTypes);
  chat.format.field = "text.format";
  chat.format.kind = name == "json_object" ? AnswerFormat::Kind::json_object : AnswerFormat::Kind::json_schema;
  if (name == "json_object") return {};
  const JsonNode schema = TRY(required_field(*format, "schema"));
  chat.format.definition = json_text(schema);
  return {};
}

Status read_effort(const JsonNode& root, ChatRequest& chat) {
  const std::optional<JsonNode> reasoning = TRY(root.optional("reasoning"));
  if (!reasoning) return {};
  const std::string effort = TRY(read_text(*reasoning, "effort", ""));
  json::object kwargs;
  if (!effort.empty()) kwargs["reasoning_effort"] = effort;
  if (effort == "none") kwargs["enable_thinking"] = false;
  if (!kwargs.empty()) chat.template_kwargs_json = json::serialize(kwargs);
  return {};
}

}  // namespace

Result<ResponsesRequest> read_responses_request(std::string_view body, const RequestLimits& limits) {
  const JsonDocument document = TRY(parse_body(body));
  const JsonNode root = document.root();
  TRY(check_fields(root, kFields));
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  chat.model = TRY(read_text(root, "model", ""));
  TRY(read_input(root, request));
  TRY(read_flat_tools(root, request));
  TRY(read_flat_tool_choice(root, chat));
  TRY(read_text_format(root, chat));
  TRY(read_effort(root, chat));
  chat.parallel_tool_calls = TRY(read_flag(root, "parallel_tool_calls", true));
  const std::string truncation = TRY(read_text(root, "truncation", "disabled"));
  if (truncation != "disabled") return root.required("truncation")->error("prompts are never cut here", "use 'disabled'");
  chat.options = TRY(read_options(root, limits));
  chat.options.max_tokens = TRY(read_integer(root, "max_output_tokens", 1, limits.max_context, 0));
  return request;
}

}  // namespace reckoner
