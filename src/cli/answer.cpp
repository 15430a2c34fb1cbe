#include "cli/answer.h"

#include <algorithm>
#include <chrono>

namespace reckoner {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double>(to - from).count(); }

class Generation {
 public:
  Generation(TextStream stream, const AnswerRequest& request, const AnswerSink& sink)
      : stream_(std::move(stream)), parser_(OutputParser::open(request.output)), special_tokens_(request.special_tokens), sink_(sink) {}

  // Takes a token; afterwards ended() says whether it was the last one.
  Status take(const TokenEvent& event) {
    last_ = Clock::now();
    if (answer_.tokens.empty()) first_ = last_;
    answer_.tokens.push_back(event.token);
    // The token that ends an answer is a signal, not text.
    if (event.finish != FinishReason::stop || special_tokens_ == SpecialTokens::keep) {
      const TextPiece piece = TRY(stream_.push(static_cast<TokenId>(event.token)));
      if (piece.stopped_by) answer_.finish_reason = "stop";
      TRY(give(parser_.push(piece.text)));
    }
    if (event.finish == FinishReason::stop) answer_.finish_reason = "stop";
    if (event.finish == FinishReason::length && !ended()) answer_.finish_reason = "length";
    return {};
  }
  bool ended() const { return !answer_.finish_reason.empty(); }
  void interrupt() { answer_.finish_reason = "interrupted"; }

  Result<Answer> finish(Clock::time_point start) {
    const TextPiece piece = TRY(stream_.finish());
    TRY(give(parser_.push(piece.text)));
    TRY(give(parser_.finish()));
    if (answer_.tokens.empty()) first_ = last_ = Clock::now();
    answer_.prompt_s = seconds_between(start, first_);
    answer_.decode_s = seconds_between(first_, last_);
    return std::move(answer_);
  }

 private:
  Status give(const OutputDelta& part) {
    answer_.reasoning += part.reasoning;
    answer_.text += part.content;
    return sink_.text(part);
  }

  TextStream stream_;
  OutputParser parser_;
  SpecialTokens special_tokens_;
  const AnswerSink& sink_;
  Answer answer_;
  Clock::time_point first_, last_;
};

}  // namespace

Result<Answer> generate(Engine& engine, const Tokenizer& tokenizer, AnswerRequest request, const AnswerSink& sink) {
  TextStream stream = TRY(TextStream::open(tokenizer, {.stop_strings = request.stop_strings, .special_tokens = request.special_tokens}));
  Generation generation(std::move(stream), request, sink);
  const auto start = Clock::now();
  const std::int64_t number = TRY(engine.submit(std::move(request.request)));
  request.fault.request = number;
  engine.inject = request.fault;
  while (!generation.ended()) {
    for (const TokenEvent& event : engine.step()) {
      if (event.finish == FinishReason::error) {
        return Error{event.error,
                     "run again with --precision exact --kernels scalar: if that works, a kernel is at fault, otherwise the weights are"};
      }
      const Status taken = generation.take(event);
      if (!taken) engine.cancel(number);
      TRY(taken);
    }
    if (!generation.ended() && sink.interrupted()) generation.interrupt();
  }
  engine.cancel(number);  // a stop string or an interruption ends it before the engine does
  return generation.finish(start);
}

}  // namespace reckoner
