// From a chat request to what is generated: the template, the tokens, and how the answer is to be read.
#pragma once

#include "server/generation.h"
#include "server/requests/chat_request.h"

namespace reckoner {

Result<std::string> render_chat(const Service& service, const ChatRequest& request);
Result<GenerationPlan> plan_chat(const Service& service, const ChatRequest& request);

}  // namespace reckoner
