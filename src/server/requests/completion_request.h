// CompletionRequest: the body of /v1/completions.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "server/requests/chat_request.h"

namespace reckoner {

// A prompt is text, or token ids.
using CompletionPrompt = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionRequest {
  std::string model;
  std::vector<CompletionPrompt> prompts;
  bool echo = false;
  bool add_special_tokens = true;
  AnswerFormat format;
  GenerationOptions options;
};

inline constexpr std::size_t kMaxPrompts = 1024;
inline constexpr std::int64_t kDefaultCompletionTokens = 16;  // as OpenAI's API says

Result<CompletionRequest> read_completion_request(std::string_view body, const RequestLimits& limits);

}  // namespace reckoner
