// The body of Anthropic's /v1/messages.
#pragma once

#include "server/requests/chat_request.h"

namespace reckoner {

Result<ChatRequest> read_messages_request(std::string_view body, const RequestLimits& limits);

}  // namespace reckoner
