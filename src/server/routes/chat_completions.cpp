// POST /v1/chat/completions
#include "server/chat_prompt.h"
#include "server/present/openai.h"
#include "server/routes/routes.h"

namespace reckoner {
namespace {

void handle_chat_completions(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const Result<ChatRequest> request = read_chat_request(exchange->request().body, service.limits);
  if (!request) return refuse(service, *exchange, to_api_error(request.error()));
  if (!service.serves(request->model)) return refuse(service, *exchange, unknown_model(service, request->model));
  Result<GenerationPlan> plan = plan_chat(service, *request);
  if (!plan) return refuse(service, *exchange, to_api_error(plan.error()));
  Generation::start(service, exchange, std::move(*plan), chat_presenter(service, exchange, *request));
}

}  // namespace

const Route kChatCompletions = {.method = "POST",
                                .path = "/v1/chat/completions",
                                .kind = RouteKind::work,
                                .handle = handle_chat_completions,
                                .about = "Answers a chat, in one piece or as a stream"};

}  // namespace reckoner
