// Answers in the form of OpenAI's Responses API.
#pragma once

#include <memory>

#include "server/generation.h"
#include "server/requests/responses_request.h"

namespace reckoner {

std::unique_ptr<Presenter> responses_presenter(const Service& service, std::shared_ptr<Exchange> exchange, const ResponsesRequest& request);

}  // namespace reckoner
