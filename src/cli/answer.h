// One answer: from a prompt's tokens to text, as it comes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace reckoner {

struct AnswerRequest {
  Request request;
  std::vector<std::string> stop_strings;
  SpecialTokens special_tokens = SpecialTokens::skip;
  OutputParserOptions output;
  InjectedFault fault;  // its `request` is filled in
};

struct Answer {
  std::string text;
  std::string reasoning;
  std::vector<std::int32_t> tokens;  // with the one that ended it
  std::string finish_reason;         // "stop", "length", "interrupted"
  double prompt_s = 0;               // until the first token
  double decode_s = 0;               // from the first token to the last
};

// What is called while the answer is made.
struct AnswerSink {
  std::function<Status(const OutputDelta&)> text;  // with each piece that is certain; its error ends the answer
  std::function<bool()> interrupted;               // asked after each step
};

// Runs the engine, which must be idle, until the answer ends. Errors: the request is refused; a value that is not finite.
Result<Answer> generate(Engine& engine, const Tokenizer& tokenizer, AnswerRequest request, const AnswerSink& sink);

}  // namespace reckoner
