#include "server/present/anthropic.h"

#include <boost/json.hpp>

#include "server/present/blocks.h"
#include "server/present/openai.h"

namespace reckoner {
namespace {

namespace json = boost::json;

json::object error_object(const ApiError& error) {
  std::string type = error.type();
  if (error.status == 503) type = "overloaded_error";
  if (error.status >= 500 && error.status != 503) type = "api_error";
  return {{"type", "error"}, {"error", json::object{{"type", std::move(type)}, {"message", error.message}}}};
}

// A call that the length cut off has no whole object.
json::value input_object(const std::string& arguments) {
  boost::system::error_code error;
  json::value value = json::parse(arguments, error);
  return !error && value.is_object() ? value : json::value(json::object());
}

json::object block_object(const Block& block) {
  switch (block.kind) {
    case Block::Kind::reasoning:
      return {{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}};
    case Block::Kind::text:
      return {{"type", "text"}, {"text", block.text}};
    case Block::Kind::call:
      return {{"type", "tool_use"}, {"id", block.call.id}, {"name", block.call.name}, {"input", input_object(block.text)}};
  }
  return {};
}

json::string stop_reason(const Choice& choice) {
  if (choice.stopped_by) return "stop_sequence";
  if (choice.finish_reason == "tool_calls") return "tool_use";
  return choice.finish_reason == "length" ? "max_tokens" : "end_turn";
}

json::value stop_sequence(const Choice& choice) {
  return choice.stopped_by ? json::value(json::string(*choice.stopped_by)) : json::value(nullptr);
}

json::object usage_numbers(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.output_tokens}};
}

json::object message_object(const AnswerForm& form, json::array content, const Usage& usage) {
  return {{"id", form.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", form.model},
          {"content", std::move(content)},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr},
          {"usage", usage_numbers(usage)}};
}

class MessageBody : public Presenter {
 public:
  MessageBody(std::shared_ptr<Exchange> exchange, AnswerForm form) : exchange_(std::move(exchange)), form_(std::move(form)) {}
  void end(const std::vector<const Choice*>& choices, const Usage& usage) override {
    const Choice& choice = *choices.front();
    json::array content;
    for (const Block& block : blocks_of(choice)) content.push_back(block_object(block));
    json::object message = message_object(form_, std::move(content), usage);
    message["stop_reason"] = stop_reason(choice);
    message["stop_sequence"] = stop_sequence(choice);
    exchange_->respond({.body = json::serialize(message)});
  }
  void fail(const ApiError& error) override { exchange_->respond(anthropic_error(error)); }

 private:
  std::shared_ptr<Exchange> exchange_;
  AnswerForm form_;
};

class MessageStream : public Presenter, private BlockStream {
 public:
  MessageStream(std::shared_ptr<Exchange> exchange, AnswerForm form)
      : exchange_(exchange), stream_(std::move(exchange)), form_(std::move(form)) {}

  void update(std::size_t /*choice*/, const ChoiceUpdate& update, const Usage& so_far) override {
    begin_message(so_far);
    add(update.delta);
  }
  void end(const std::vector<const Choice*>& choices, const Usage& usage) override {
    BlockStream::end();
    const Choice& choice = *choices.front();
    send("message_delta", {{"delta", json::object{{"stop_reason", stop_reason(choice)}, {"stop_sequence", stop_sequence(choice)}}},
                           {"usage", usage_numbers(usage)}});
    send("message_stop", {});
    stream_.end();
  }
  void fail(const ApiError& error) override {
    if (!begun_) return exchange_->respond(anthropic_error(error));
    stream_.send(error_object(error), "error");
    stream_.end();
  }

 private:
  // With the first token: only then is it known what the cache had of the prompt.
  void begin_message(const Usage& usage) {
    if (std::exchange(begun_, true)) return;
    stream_.begin();
    send("message_start", {{"message", message_object(form_, {}, usage)}});
  }
  void open(std::size_t index, const Block& block) override {
    send("content_block_start", {{"index", index}, {"content_block", block_object(block)}});
  }
  void grow(std::size_t index, const Block& block, const std::string& piece) override {
    json::object delta;
    if (block.kind == Block::Kind::reasoning) delta = {{"type", "thinking_delta"}, {"thinking", piece}};
    if (block.kind == Block::Kind::text) delta = {{"type", "text_delta"}, {"text", piece}};
    if (block.kind == Block::Kind::call) delta = {{"type", "input_json_delta"}, {"partial_json", piece}};
    send("content_block_delta", {{"index", index}, {"delta", std::move(delta)}});
  }
  void close(std::size_t index, const Block& /*block*/) override { send("content_block_stop", {{"index", index}}); }
  void send(std::string_view type, json::object fields) {
    json::object event{{"type", json::string(json::string_view(type.data(), type.size()))}};
    for (auto& field : fields) event[field.key()] = std::move(field.value());
    stream_.send(event, type);
  }

  std::shared_ptr<Exchange> exchange_;
  EventStream stream_;
  AnswerForm form_;
  bool begun_ = false;
};

}  // namespace

HttpResponse anthropic_error(const ApiError& error) {
  HttpResponse response = to_response(error);
  response.body = json::serialize(error_object(error));
  return response;
}

std::unique_ptr<Presenter> messages_presenter(const Service& service, std::shared_ptr<Exchange> exchange, const ChatRequest& request) {
  AnswerForm form{.id = new_id("msg_"), .object = "message", .model = service.model_name(), .created = unix_seconds()};
  if (!request.options.stream) return std::make_unique<MessageBody>(std::move(exchange), std::move(form));
  return std::make_unique<MessageStream>(std::move(exchange), std::move(form));
}

}  // namespace reckoner
