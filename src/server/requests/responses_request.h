// The body of OpenAI's /v1/responses.
#pragma once

#include <string>

#include "server/requests/chat_request.h"

namespace reckoner {

struct ResponsesRequest {
  ChatRequest chat;
  std::string instructions;
  std::string tools_json = "[]";  // as given, to be repeated in the answer
};

Result<ResponsesRequest> read_responses_request(std::string_view body, const RequestLimits& limits);

}  // namespace reckoner
