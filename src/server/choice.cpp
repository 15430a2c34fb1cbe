#include "server/choice.h"

#include <utility>

namespace reckoner {

namespace {

const char* reason_text(FinishReason finish) {
  switch (finish) {
    case FinishReason::stop:
    case FinishReason::complete:
      return "stop";
    case FinishReason::length:
      return "length";
    default:
      return "";
  }
}

}  // namespace

Result<ChoiceReader> ChoiceReader::open(const Tokenizer& tokenizer, const ChoiceOptions& options) {
  TextStream stream = TRY(TextStream::open(tokenizer, {.stop_strings = options.stop, .special_tokens = options.special_tokens}));
  return ChoiceReader(std::move(stream), options);
}

ChoiceReader::ChoiceReader(TextStream stream, const ChoiceOptions& options)
    : stream_(std::move(stream)), stop_(options.stop), wants_logprobs_(options.wants_logprobs), one_call_only_(options.one_call_only) {
  if (options.parser) parser_.emplace(OutputParser::open(*options.parser));
}

Result<ChoiceUpdate> ChoiceReader::take(const TokenEvent& event) {
  ChoiceUpdate update;
  if (ended()) return update;  // a token that was on its way when a stop string ended the answer
  ++choice_.tokens;
  const bool was_reasoning = parser_ && parser_->reasoning();
  std::string reason = reason_text(event.finish);
  // The token that ends an answer is a signal, not text.
  if (event.finish != FinishReason::stop) {
    if (wants_logprobs_) update.logprobs.push_back({.token = event.token, .logprob = event.logprob, .top = event.top_logprobs});
    const TextPiece piece = TRY(stream_.push(static_cast<TokenId>(event.token)));
    add_text(piece.text, update);
    if (piece.stopped_by) choice_.stopped_by = stop_[*piece.stopped_by];
    if (piece.stopped_by || second_call_) reason = "stop";
  }
  if (was_reasoning || (parser_ && parser_->reasoning())) ++choice_.reasoning_tokens;
  if (!reason.empty()) TRY(end(std::move(reason), update));
  choice_.logprobs.insert(choice_.logprobs.end(), update.logprobs.begin(), update.logprobs.end());
  return update;
}

void ChoiceReader::add_text(const std::string& text, ChoiceUpdate& update) {
  if (text.empty()) return;
  add_delta(parser_ ? parser_->push(text) : OutputDelta{.reasoning = {}, .content = text, .tool_calls = {}}, update);
}

void ChoiceReader::add_delta(OutputDelta delta, ChoiceUpdate& update) {
  choice_.reasoning += delta.reasoning;
  choice_.content += delta.content;
  update.delta.reasoning += delta.reasoning;
  update.delta.content += delta.content;
  for (ToolCallDelta& call : delta.tool_calls) {
    second_call_ = second_call_ || (one_call_only_ && call.index > 0);
    if (second_call_) return;
    if (call.index >= choice_.tool_calls.size()) choice_.tool_calls.resize(call.index + 1);
    ChatToolCall& whole = choice_.tool_calls[call.index];
    whole.id += call.id;
    whole.name += call.name;
    whole.arguments += call.arguments;
    update.delta.tool_calls.push_back(std::move(call));
  }
}

Status ChoiceReader::end(std::string reason, ChoiceUpdate& update) {
  const TextPiece rest = TRY(stream_.finish());
  if (!second_call_) add_text(rest.text, update);
  if (parser_ && !second_call_) add_delta(parser_->finish(), update);
  const bool called = reason == "stop" && !choice_.tool_calls.empty() && !choice_.stopped_by;
  choice_.finish_reason = called ? "tool_calls" : std::move(reason);
  update.finish_reason = choice_.finish_reason;
  return {};
}

}  // namespace reckoner
