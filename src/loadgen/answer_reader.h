// AnswerReader: the HTTP answer to one streamed request becomes its timeline. Knows OpenAI's chat and completion chunks; no network.
#pragma once

#include <string>
#include <string_view>

#include "loadgen/sse_parser.h"
#include "loadgen/timeline.h"

namespace reckoner::loadgen {

class AnswerReader {
 public:
  explicit AnswerReader(Timeline& timeline) : timeline_(timeline) {}

  void head(int status, std::string_view content_type);
  // False: the answer is no use any more.
  bool body(std::string_view bytes, double at_s);
  // The answer came to its end, or body() gave false; or it did not, for this reason.
  void end(double at_s);
  void broken_off(const Failure& why, double at_s);

 private:
  bool take(const SseEvent& event, double at_s);
  bool fail(FailureKind kind, std::string message);
  void settle();

  Timeline& timeline_;
  SseParser parser_;
  int status_ = 0;
  std::string content_type_;
  std::string error_body_;  // of an answer that is no stream
  std::int64_t counted_tokens_ = 0;
  bool done_ = false;  // [DONE] came
};

// The message in the body of an error, whichever of the usual shapes it has, on one line; else the beginning of the body.
std::string error_message(std::string_view body);

}  // namespace reckoner::loadgen
