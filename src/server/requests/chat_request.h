// ChatRequest: the body of /v1/chat/completions, typed and checked. The other chat APIs become one too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/requests/options.h"
#include "text/call_grammar.h"

namespace reckoner {

struct ChatToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text of an object
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant" or "tool"
  std::string content = {};
  std::string reasoning = {};                 // of an assistant
  std::vector<ChatToolCall> tool_calls = {};  // of an assistant
  std::string tool_call_id = {};              // of a tool
  std::string name = {};
};

struct ToolChoice {
  enum class Kind : std::uint8_t { none, automatic, required, named };
  Kind kind = Kind::automatic;
  std::string name = {};  // of Kind::named
};

// What the answer's text must look like.
struct AnswerFormat {
  enum class Kind : std::uint8_t { text, json_object, json_schema, regex, grammar, choice };
  Kind kind = Kind::text;
  std::string definition = {};            // the schema as JSON text, the expression, or the grammar
  std::vector<std::string> choices = {};  // of Kind::choice: the answer is one of them
  std::string field = {};                 // where the request asks for it
};

struct ChatRequest {
  std::string model;  // as the client calls it; empty: any
  std::vector<ChatMessage> messages;
  std::vector<ToolSignature> tools;
  std::string tools_json;  // as the request has them; empty: none
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;
  AnswerFormat format;
  std::string template_kwargs_json;  // an object; may be empty
  bool include_reasoning = true;
  bool add_generation_prompt = true;
  GenerationOptions options;
};

Result<ChatRequest> read_chat_request(std::string_view body, const RequestLimits& limits);

// "auto", "none", "required" or {"type": "function", "function": {"name": ...}}, and only tools that are there.
Result<ToolChoice> read_tool_choice(const JsonNode& root, const ChatRequest& request);
Status read_tools(const JsonNode& root, ChatRequest& request);
// response_format, and structured_outputs as vLLM has it.
Result<AnswerFormat> read_answer_format(const JsonNode& root);
Result<std::vector<ChatMessage>> read_messages(const JsonNode& array);

// What a chat template takes.
std::string messages_json(const std::vector<ChatMessage>& messages);

}  // namespace reckoner
