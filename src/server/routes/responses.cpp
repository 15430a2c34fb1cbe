// POST /v1/responses: OpenAI's newer API, without what would need a memory of earlier responses.
#include "server/present/responses.h"
#include "server/chat_prompt.h"
#include "server/routes/routes.h"

namespace reckoner {
namespace {

void handle_responses(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const Result<ResponsesRequest> request = read_responses_request(exchange->request().body, service.limits);
  if (!request) return refuse(service, *exchange, to_api_error(request.error()));
  if (!service.serves(request->chat.model)) return refuse(service, *exchange, unknown_model(service, request->chat.model));
  Result<GenerationPlan> plan = plan_chat(service, request->chat);
  if (!plan) return refuse(service, *exchange, to_api_error(plan.error()));
  Generation::start(service, exchange, std::move(*plan), responses_presenter(service, exchange, *request));
}

}  // namespace

const Route kResponses = {.method = "POST",
                          .path = "/v1/responses",
                          .kind = RouteKind::work,
                          .handle = handle_responses,
                          .about = "Answers items, as OpenAI's newer API has it"};

}  // namespace reckoner
