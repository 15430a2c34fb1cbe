// POST /v1/messages, as Anthropic has it.
#include "server/requests/messages_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/chat_prompt.h"
#include "server/present/anthropic.h"
#include "server/routes/routes.h"

namespace reckoner {
namespace {

void refuse_message(Service& service, Exchange& exchange, const ApiError& error) {
  service.metrics.refused(error.status);
  exchange.respond(anthropic_error(error));
}

void handle_messages(Service& service, const std::shared_ptr<Exchange>& exchange) {
  Result<ChatRequest> request = read_messages_request(exchange->request().body, service.limits);
  if (!request) return refuse_message(service, *exchange, to_api_error(request.error()));
  if (!service.serves(request->model)) return refuse_message(service, *exchange, unknown_model(service, request->model));
  Result<GenerationPlan> plan = plan_chat(service, *request);
  if (!plan) return refuse_message(service, *exchange, to_api_error(plan.error()));
  // Clients send the most that their own models could answer; here it is the most that the context has room for.
  const std::int64_t room = service.limits.max_context - static_cast<std::int64_t>(plan->prompts.front().size());
  plan->options.max_tokens = std::min(plan->options.max_tokens, std::max<std::int64_t>(room, 1));
  Generation::start(service, exchange, std::move(*plan), messages_presenter(service, exchange, *request));
}

// POST /v1/messages/count_tokens: how long the prompt is that a chat becomes.
void handle_count(Service& service, const std::shared_ptr<Exchange>& exchange) {
  Result<ChatRequest> request = read_messages_request(exchange->request().body, service.limits, MessagesUse::count);
  if (!request) return refuse_message(service, *exchange, to_api_error(request.error()));
  if (!service.serves(request->model)) return refuse_message(service, *exchange, unknown_model(service, request->model));
  const Result<GenerationPlan> plan = plan_chat(service, *request);
  if (!plan) return refuse_message(service, *exchange, to_api_error(plan.error()));
  exchange->respond({.body = fmt::format(R"({{"input_tokens":{}}})", plan->prompts.front().size())});
}

}  // namespace

const Route kCountTokens = {.method = "POST",
                            .path = "/v1/messages/count_tokens",
                            .handle = handle_count,
                            .about = "Counts the tokens of a chat's prompt, in Anthropic's form"};
const Route kMessages = {.method = "POST",
                         .path = "/v1/messages",
                         .kind = RouteKind::work,
                         .handle = handle_messages,
                         .about = "Answers a chat, in Anthropic's form"};

}  // namespace reckoner
