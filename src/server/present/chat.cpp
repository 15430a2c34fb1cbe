// Answers of /v1/chat/completions.
#include <boost/json.hpp>

#include "server/present/openai.h"

namespace reckoner {
namespace {

namespace json = boost::json;

struct ChatForm {
  AnswerForm answer;
  bool has_logprobs = false;
  bool include_reasoning = true;
};

ChatForm form_for(const Service& service, const ChatRequest& request) {
  return {.answer = {.id = new_id("chatcmpl-"),
                     .object = "chat.completion",
                     .model = service.model_name(),
                     .created = unix_seconds(),
                     .include_usage = request.options.include_usage,
                     .continuous_usage = request.options.continuous_usage},
          .has_logprobs = request.options.logprobs.has_value(),
          .include_reasoning = request.include_reasoning};
}

json::value stop_reason(const Choice& choice) {
  return choice.stopped_by ? json::value(json::string(*choice.stopped_by)) : json::value(nullptr);
}

class ChatBody : public Presenter {
 public:
  ChatBody(const Service& service, std::shared_ptr<Exchange> exchange, ChatForm form)
      : tokenizer_(service.tokenizer), exchange_(std::move(exchange)), form_(std::move(form)) {}

  void end(const std::vector<const Choice*>& choices, const Usage& usage) override {
    json::array array;
    for (const Choice* choice : choices) array.push_back(choice_object(*choice, array.size()));
    json::object body = form_.answer.head("chat.completion");
    body["choices"] = std::move(array);
    body["usage"] = usage_object(usage);
    exchange_->respond({.body = json::serialize(body)});
  }
  void fail(const ApiError& error) override { exchange_->respond(to_response(error)); }

 private:
  json::object message(const Choice& choice) const {
    json::object object{{"role", "assistant"}, {"content", choice.content}};
    if (choice.content.empty() && !choice.tool_calls.empty()) object["content"] = nullptr;
    if (form_.include_reasoning && !choice.reasoning.empty()) object["reasoning_content"] = choice.reasoning;
    json::array calls;
    for (const ChatToolCall& call : choice.tool_calls) {
      calls.push_back(json::object{
          {"id", call.id}, {"type", "function"}, {"function", json::object{{"name", call.name}, {"arguments", call.arguments}}}});
    }
    if (!calls.empty()) object["tool_calls"] = std::move(calls);
    return object;
  }
  json::object choice_object(const Choice& choice, std::size_t index) const {
    json::value logprobs = nullptr;
    if (form_.has_logprobs) logprobs = chat_logprobs(tokenizer_, choice.logprobs);
    return {{"index", index},
            {"message", message(choice)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", choice.finish_reason},
            {"stop_reason", stop_reason(choice)}};
  }

  const Tokenizer& tokenizer_;
  std::shared_ptr<Exchange> exchange_;
  ChatForm form_;
};

class ChatStream : public Presenter {
 public:
  ChatStream(const Service& service, std::shared_ptr<Exchange> exchange, ChatForm form, std::int64_t choices)
      : tokenizer_(service.tokenizer), stream_(std::move(exchange)), form_(std::move(form)), choices_(choices) {}

  void begin() override {
    stream_.begin();
    for (std::int64_t i = 0; i < choices_; ++i) {
      send(static_cast<std::size_t>(i), json::object{{"role", "assistant"}, {"content", ""}}, {}, "", {});
    }
  }
  void update(std::size_t choice, const ChoiceUpdate& update, const Usage& so_far) override {
    json::object delta;
    if (form_.include_reasoning && !update.delta.reasoning.empty()) delta["reasoning_content"] = update.delta.reasoning;
    if (!update.delta.content.empty()) delta["content"] = update.delta.content;
    if (!update.delta.tool_calls.empty()) delta["tool_calls"] = calls(update.delta.tool_calls);
    const bool has_logprobs = form_.has_logprobs && !update.logprobs.empty();
    if (delta.empty() && !has_logprobs && update.finish_reason.empty()) return;
    if (!delta.empty() || has_logprobs) send(choice, std::move(delta), update.logprobs, "", so_far);
    if (!update.finish_reason.empty()) send(choice, {}, {}, update.finish_reason, so_far);
  }
  void end(const std::vector<const Choice*>& /*choices*/, const Usage& usage) override {
    stream_.end(form_.answer, "chat.completion.chunk", usage);
  }
  void fail(const ApiError& error) override { stream_.fail(error); }

 private:
  static json::array calls(const std::vector<ToolCallDelta>& deltas) {
    json::array array;
    for (const ToolCallDelta& delta : deltas) {
      json::object function{{"arguments", delta.arguments}};
      json::object call{{"index", delta.index}};
      if (!delta.name.empty()) {
        function["name"] = delta.name;
        call["id"] = delta.id;
        call["type"] = "function";
      }
      call["function"] = std::move(function);
      array.push_back(std::move(call));
    }
    return array;
  }
  void send(std::size_t index, json::object delta, const std::vector<ChoiceLogprob>& logprobs, const std::string& finish,
            const Usage& usage) {
    json::object choice{{"index", index}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (form_.has_logprobs && !logprobs.empty()) choice["logprobs"] = chat_logprobs(tokenizer_, logprobs);
    if (!finish.empty()) choice["finish_reason"] = finish;
    stream_.send(form_.answer.chunk("chat.completion.chunk", std::move(choice), usage));
  }

  const Tokenizer& tokenizer_;
  EventStream stream_;
  ChatForm form_;
  std::int64_t choices_;
};

}  // namespace

std::unique_ptr<Presenter> chat_presenter(const Service& service, std::shared_ptr<Exchange> exchange, const ChatRequest& request) {
  ChatForm form = form_for(service, request);
  if (!request.options.stream) return std::make_unique<ChatBody>(service, std::move(exchange), std::move(form));
  return std::make_unique<ChatStream>(service, std::move(exchange), std::move(form), request.options.n);
}

}  // namespace reckoner
