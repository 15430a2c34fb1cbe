// Answers in the form of Anthropic's API.
#pragma once

#include <memory>

#include "server/generation.h"

namespace reckoner {

HttpResponse anthropic_error(const ApiError& error);
std::unique_ptr<Presenter> messages_presenter(const Service& service, std::shared_ptr<Exchange> exchange, const ChatRequest& request);

}  // namespace reckoner
