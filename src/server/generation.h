// Generation: the answers to one HTTP request, from the engine's events to a presenter that writes them in some API's form.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "server/answer_constraint.h"
#include "server/choice.h"
#include "server/service.h"

namespace reckoner {

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt
  std::int64_t output_tokens = 0;
  std::int64_t reasoning_tokens = 0;  // of the output
};

// Writes answers in an API's form, to the exchange it was made with. Called on the exchange's strand.
class Presenter {
 public:
  virtual ~Presenter() = default;
  // The queue took the request.
  virtual void begin() {}
  virtual void update(std::size_t /*choice*/, const ChoiceUpdate& /*update*/, const Usage& /*so_far*/) {}
  // Either of these is the last call.
  virtual void end(const std::vector<const Choice*>& choices, const Usage& usage) = 0;
  virtual void fail(const ApiError& error) = 0;
};

struct GenerationPlan {
  std::vector<std::vector<std::int32_t>> prompts;  // each gets options.n answers, one after the other
  GenerationOptions options;
  std::optional<OutputParserOptions> parser;
  bool one_call_only = false;
  AnswerConstraints constraints = {};  // one an answer, or none
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Checks, queues, and lets the presenter answer. Whatever is wrong, the presenter's fail() says it. On the exchange's strand.
  static void start(Service& service, const std::shared_ptr<Exchange>& exchange, GenerationPlan plan, std::unique_ptr<Presenter> presenter);

 private:
  using Clock = std::chrono::steady_clock;
  struct Answer {
    ChoiceReader reader;
    Ticket ticket = 0;
    Clock::time_point last_token = {};
    std::int64_t cached_tokens = 0;
  };

  Generation(Service& service, std::shared_ptr<Exchange> exchange, GenerationPlan plan, std::unique_ptr<Presenter> presenter);
  Status open_readers();
  Request request_for(std::size_t answer) const;
  void submit();
  void take(std::size_t answer, const StreamUpdate& update);
  // False: the generation has failed.
  bool take_event(std::size_t answer, const TokenEvent& event);
  void note_token(Answer& answer);
  std::vector<ChoiceLogprob> prompt_logprobs(std::size_t answer, const TokenEvent& event) const;
  void finish();
  void fail(const ApiError& error, const char* reason);
  void abandon();
  void cancel_all();
  Usage usage() const;
  void record(const char* reason) const;

  Service& service_;
  std::shared_ptr<Exchange> exchange_;
  GenerationPlan plan_;
  std::unique_ptr<Presenter> presenter_;
  std::vector<Answer> answers_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point first_token_ = {};
  bool over_ = false;
};

}  // namespace reckoner
