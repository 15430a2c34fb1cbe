// ChoiceReader: turns the tokens of one answer into text, reasoning and tool calls, as they come.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/requests/chat_request.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace reckoner {

struct ChoiceLogprob {
  std::int32_t token = 0;
  double logprob = 0;                  // not a number: none, as of a prompt's first token
  std::vector<TokenLogprob> top = {};  // most probable first
};

// An answer as far as it goes.
struct Choice {
  std::string content;
  std::string reasoning;
  std::vector<ChatToolCall> tool_calls;
  std::vector<ChoiceLogprob> prompt_logprobs;  // if asked for
  std::vector<ChoiceLogprob> logprobs;
  std::int64_t tokens = 0;                // with the one that ended it
  std::int64_t reasoning_tokens = 0;      // of them
  std::string finish_reason;              // "stop", "length", "tool_calls"; empty: it goes on
  std::optional<std::string> stopped_by;  // which of the stop strings
};

// What one token added.
struct ChoiceUpdate {
  OutputDelta delta;
  std::vector<ChoiceLogprob> logprobs;
  std::string finish_reason;  // empty: it goes on
};

struct ChoiceOptions {
  std::vector<std::string> stop;
  SpecialTokens special_tokens = SpecialTokens::skip;
  std::optional<OutputParserOptions> parser;  // none: all text is content
  bool wants_logprobs = false;
  bool one_call_only = false;  // the answer ends where a second call begins
};

class ChoiceReader {
 public:
  static Result<ChoiceReader> open(const Tokenizer& tokenizer, const ChoiceOptions& options);

  Result<ChoiceUpdate> take(const TokenEvent& event);
  void set_prompt_logprobs(std::vector<ChoiceLogprob> logprobs) { choice_.prompt_logprobs = std::move(logprobs); }
  const Choice& choice() const { return choice_; }
  bool ended() const { return !choice_.finish_reason.empty(); }

 private:
  ChoiceReader(TextStream stream, const ChoiceOptions& options);
  void add_text(const std::string& text, ChoiceUpdate& update);
  void add_delta(OutputDelta delta, ChoiceUpdate& update);
  Status end(std::string reason, ChoiceUpdate& update);

  TextStream stream_;
  std::optional<OutputParser> parser_;
  std::vector<std::string> stop_;
  bool wants_logprobs_;
  bool one_call_only_;
  bool second_call_ = false;
  Choice choice_;
};

}  // namespace reckoner
