// POST /v1/completions
#include "server/chat_prompt.h"
#include "server/present/openai.h"
#include "server/requests/completion_request.h"
#include "server/routes/routes.h"

namespace reckoner {
namespace {

Result<std::vector<std::int32_t>> tokens_of(const Service& service, const CompletionRequest& request, const CompletionPrompt& prompt) {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&prompt)) return *ids;
  const AddSpecialTokens special = request.add_special_tokens ? AddSpecialTokens::yes : AddSpecialTokens::no;
  const std::vector<TokenId> ids = TRY(service.tokenizer.encode(std::get<std::string>(prompt), special));
  return std::vector<std::int32_t>(ids.begin(), ids.end());
}

Result<GenerationPlan> plan_completion(const Service& service, const CompletionRequest& request) {
  GenerationPlan plan{.prompts = {}, .options = request.options, .parser = {}};
  for (const CompletionPrompt& prompt : request.prompts) {
    std::vector<std::int32_t> tokens = TRY(tokens_of(service, request, prompt));
    plan.prompts.push_back(std::move(tokens));
  }
  const std::size_t answers = plan.prompts.size() * static_cast<std::size_t>(request.options.n);
  plan.constraints = TRY(constrain_answers(service, {.format = request.format}, answers));
  return plan;
}

// What echo puts before the answers.
Result<std::vector<std::string>> echoed_texts(const Service& service, const CompletionRequest& request) {
  std::vector<std::string> texts;
  for (const CompletionPrompt& prompt : request.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      texts.push_back(*text);
      continue;
    }
    const auto& ids = std::get<std::vector<std::int32_t>>(prompt);
    std::string text = TRY(service.tokenizer.decode(std::vector<TokenId>(ids.begin(), ids.end())));
    texts.push_back(std::move(text));
  }
  return texts;
}

void handle_completions(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const Result<CompletionRequest> request = read_completion_request(exchange->request().body, service.limits);
  if (!request) return refuse(service, *exchange, to_api_error(request.error()));
  if (!service.serves(request->model)) return refuse(service, *exchange, unknown_model(service, request->model));
  Result<GenerationPlan> plan = plan_completion(service, *request);
  if (!plan) return refuse(service, *exchange, to_api_error(plan.error()));
  Result<std::vector<std::string>> echoed = std::vector<std::string>();
  if (request->echo) echoed = echoed_texts(service, *request);
  if (!echoed) return refuse(service, *exchange, to_api_error(echoed.error()));
  Generation::start(service, exchange, std::move(*plan), completion_presenter(service, exchange, *request, std::move(*echoed)));
}

}  // namespace

const Route kCompletions = {.method = "POST",
                            .path = "/v1/completions",
                            .kind = RouteKind::work,
                            .handle = handle_completions,
                            .about = "Continues a text, or token ids, without a chat template"};

}  // namespace reckoner
