#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>

namespace reckoner {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// What the engine would refuse too, said in the API's words.
std::optional<ApiError> check_length(const Service& service, const GenerationPlan& plan) {
  for (const auto& prompt : plan.prompts) {
    const auto tokens = static_cast<std::int64_t>(prompt.size());
    if (tokens == 0) return ApiError{.message = "the prompt has no token; send some text", .param = "prompt"};
    const std::int64_t wanted = std::max<std::int64_t>(plan.options.max_tokens, 1);
    if (tokens + wanted <= service.limits.max_context) continue;
    return ApiError{.message = fmt::format("the context holds {} tokens, and this asks for {}: {} of prompt and {} of answer; shorten the "
                                           "prompt or lower max_tokens",
                                           service.limits.max_context, tokens + wanted, tokens, wanted),
                    .param = tokens >= service.limits.max_context ? "messages" : "max_tokens",
                    .code = "context_length_exceeded"};
  }
  return std::nullopt;
}

std::uint64_t random_seed() {
  std::random_device random;
  return (static_cast<std::uint64_t>(random()) << 32) | random();
}

}  // namespace

void Generation::start(Service& service, const std::shared_ptr<Exchange>& exchange, GenerationPlan plan,
                       std::unique_ptr<Presenter> presenter) {
  const std::shared_ptr<Generation> generation(new Generation(service, exchange, std::move(plan), std::move(presenter)));
  if (const auto error = check_length(service, generation->plan_)) return generation->fail(*error, "error");
  if (const Status opened = generation->open_readers(); !opened) return generation->fail(to_api_error(opened.error()), "error");
  generation->submit();
}

Generation::Generation(Service& service, std::shared_ptr<Exchange> exchange, GenerationPlan plan, std::unique_ptr<Presenter> presenter)
    : service_(service), exchange_(std::move(exchange)), plan_(std::move(plan)), presenter_(std::move(presenter)) {
  if (!plan_.options.has_seed) plan_.options.sampling.seed = random_seed();
}

Status Generation::open_readers() {
  const ChoiceOptions options{.stop = plan_.options.stop,
                              .special_tokens = plan_.options.skip_special_tokens ? SpecialTokens::skip : SpecialTokens::keep,
                              .parser = plan_.parser,
                              .wants_logprobs = plan_.options.logprobs.has_value(),
                              .one_call_only = plan_.one_call_only};
  const std::size_t count = plan_.prompts.size() * static_cast<std::size_t>(plan_.options.n);
  for (std::size_t i = 0; i < count; ++i) {
    ChoiceReader reader = TRY(ChoiceReader::open(service_.tokenizer, options));
    answers_.push_back({.reader = std::move(reader)});
  }
  return {};
}

Request Generation::request_for(std::size_t answer) const {
  const auto n = static_cast<std::size_t>(plan_.options.n);
  Request request{.prompt = plan_.prompts[answer / n], .sampling = plan_.options.sampling, .max_tokens = plan_.options.max_tokens};
  request.sampling.seed += answer % n;
  request.stop_tokens = plan_.options.stop_token_ids;
  request.end_tokens = service_.end_tokens;
  request.ignore_eos = plan_.options.ignore_eos;
  request.min_tokens = plan_.options.min_tokens;
  request.logprobs = plan_.options.logprobs;
  if (!plan_.constraints.empty()) request.constraint = plan_.constraints[answer];
  if (plan_.options.prompt_logprobs) request.prompt_logprobs = plan_.options.logprobs;
  return request;
}

void Generation::submit() {
  std::vector<std::pair<Request, StreamSink>> requests;
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    requests.emplace_back(request_for(i), [self = shared_from_this(), i](StreamUpdate update) {
      self->exchange_->post([self, i, update = std::move(update)] { self->take(i, update); });
    });
  }
  const std::optional<std::vector<Ticket>> tickets = service_.engine.submit(std::move(requests));
  if (!tickets) {
    return fail({.status = 429, .message = "too many requests are waiting; try again later", .code = "queue_full", .retry_after_s = 1},
                "refused");
  }
  for (std::size_t i = 0; i < answers_.size(); ++i) answers_[i].ticket = (*tickets)[i];
  presenter_->begin();
  exchange_->on_gone([self = shared_from_this()] { self->abandon(); });
}

void Generation::take(std::size_t answer, const StreamUpdate& update) {
  if (over_) return;
  if (update.refused) return fail(to_api_error(*update.refused), "error");
  for (const TokenEvent& event : update.events) {
    if (!take_event(answer, event) || over_) return;  // over: writing showed that the client has gone
  }
  const auto ended = [](const Answer& one) { return one.reader.ended(); };
  if (std::all_of(answers_.begin(), answers_.end(), ended)) finish();
}

bool Generation::take_event(std::size_t index, const TokenEvent& event) {
  Answer& answer = answers_[index];
  if (event.finish == FinishReason::error) {
    fail({.status = 500, .message = event.error, .code = "non_finite_value"}, "error");
    return false;
  }
  if (answer.reader.ended()) return true;
  note_token(answer);
  if (!event.prompt_logprobs.empty()) answer.reader.set_prompt_logprobs(prompt_logprobs(index, event));
  answer.cached_tokens = std::max(answer.cached_tokens, event.cached_tokens);
  const Result<ChoiceUpdate> update = answer.reader.take(event);
  if (!update) {
    fail(to_api_error(update.error(), 500), "error");
    return false;
  }
  if (answer.reader.ended() && event.finish == FinishReason::none) service_.engine.cancel(answer.ticket);
  presenter_->update(index, *update, usage());
  return true;
}

// The engine's logprobs, with the tokens that they are of; there is none of the first.
std::vector<ChoiceLogprob> Generation::prompt_logprobs(std::size_t answer, const TokenEvent& event) const {
  const std::vector<std::int32_t>& prompt = plan_.prompts[answer / static_cast<std::size_t>(plan_.options.n)];
  std::vector<ChoiceLogprob> all = {{.token = prompt.front(), .logprob = std::numeric_limits<double>::quiet_NaN()}};
  for (const PromptLogprob& one : event.prompt_logprobs)
    all.push_back({.token = prompt[all.size()], .logprob = one.logprob, .top = one.top});
  return all;
}

void Generation::note_token(Answer& answer) {
  const Clock::time_point now = Clock::now();
  if (first_token_ == Clock::time_point{}) first_token_ = now;
  if (answer.last_token != Clock::time_point{}) service_.metrics.token_after(seconds_between(answer.last_token, now));
  answer.last_token = now;
}

void Generation::finish() {
  over_ = true;
  std::vector<const Choice*> choices;
  for (const Answer& answer : answers_) choices.push_back(&answer.reader.choice());
  record(choices.front()->finish_reason == "length" ? "length" : "stop");
  presenter_->end(choices, usage());
}

void Generation::fail(const ApiError& error, const char* reason) {
  over_ = true;
  cancel_all();
  if (std::string_view(reason) == "error" && error.status >= 500) record(reason);
  if (error.status < 500) service_.metrics.refused(error.status);
  presenter_->fail(error);
}

// Nobody is left to hear the answer.
void Generation::abandon() {
  if (over_) return;
  over_ = true;
  cancel_all();
  record("abort");
}

void Generation::cancel_all() {
  for (const Answer& answer : answers_) {
    if (answer.ticket != 0 && !answer.reader.ended()) service_.engine.cancel(answer.ticket);
  }
}

Usage Generation::usage() const {
  Usage usage;
  for (const auto& prompt : plan_.prompts) usage.prompt_tokens += static_cast<std::int64_t>(prompt.size());
  const auto n = static_cast<std::size_t>(plan_.options.n);
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    usage.output_tokens += answers_[i].reader.choice().tokens;
    usage.reasoning_tokens += answers_[i].reader.choice().reasoning_tokens;
    if (i % n == 0) usage.cached_tokens += answers_[i].cached_tokens;  // the others share the first one's prompt
  }
  return usage;
}

void Generation::record(const char* reason) const {
  const Usage used = usage();
  service_.metrics.request_ended({.finish_reason = reason,
                                  .prompt_tokens = used.prompt_tokens,
                                  .cached_tokens = used.cached_tokens,
                                  .output_tokens = used.output_tokens,
                                  .first_token_s = used.output_tokens > 0 ? seconds_between(start_, first_token_) : 0,
                                  .total_s = seconds_between(start_, Clock::now())});
}

}  // namespace reckoner
