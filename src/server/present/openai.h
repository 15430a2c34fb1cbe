// The forms of OpenAI's API that several of its endpoints share.
#pragma once

#include <boost/json/object.hpp>
#include <memory>
#include <string>

#include "server/generation.h"

namespace reckoner {

// {"prompt_tokens": ..., "completion_tokens": ..., "total_tokens": ..., "prompt_tokens_details": {"cached_tokens": ...}}
boost::json::object usage_object(const Usage& usage);

// What an answer to a completion request, chat or not, says of itself.
struct AnswerForm {
  std::string id;      // "chatcmpl-..."
  std::string object;  // "chat.completion"
  std::string model;
  std::int64_t created = 0;
  bool include_usage = false;     // a stream ends with a chunk of the usage
  bool continuous_usage = false;  // and every chunk says what was used so far
  // The head of a body or chunk: id, object, created, model.
  boost::json::object head(std::string_view object_name) const;
  // A chunk of a stream with one choice.
  boost::json::object chunk(std::string_view object_name, boost::json::object choice, const Usage& so_far) const;
};

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}
boost::json::object chat_logprobs(const Tokenizer& tokenizer, const std::vector<ChoiceLogprob>& logprobs);
// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; the first token's text begins at `offset`, which is moved behind the last.
boost::json::object completion_logprobs(const Tokenizer& tokenizer, const std::vector<ChoiceLogprob>& logprobs, std::int64_t& offset);

std::unique_ptr<Presenter> chat_presenter(const Service& service, std::shared_ptr<Exchange> exchange, const ChatRequest& request);

struct CompletionRequest;
// `prompt_texts`: what echo puts before each answer; else empty.
std::unique_ptr<Presenter> completion_presenter(const Service& service, std::shared_ptr<Exchange> exchange,
                                                const CompletionRequest& request, std::vector<std::string> prompt_texts);

// A presenter's stream of events: the header goes out with begin(), errors come as an event once it has.
class EventStream {
 public:
  explicit EventStream(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  void begin();
  void send(const boost::json::object& data, std::string_view name = {});
  void send_text(std::string_view data);
  void end() { exchange_->end(); }
  // The usage, if it is wanted, and [DONE].
  void end(const AnswerForm& form, std::string_view object_name, const Usage& usage);
  // As the answer, or, when that has begun, as its last event.
  void fail(const ApiError& error);

 private:
  std::shared_ptr<Exchange> exchange_;
  bool begun_ = false;
};

}  // namespace reckoner
