// The body of Anthropic's /v1/messages.
#pragma once

#include "server/requests/chat_request.h"

namespace reckoner {

// Who only counts a prompt's tokens need not say how many may follow.
enum class MessagesUse : std::uint8_t { answer, count };

Result<ChatRequest> read_messages_request(std::string_view body, const RequestLimits& limits, MessagesUse use = MessagesUse::answer);

}  // namespace reckoner
