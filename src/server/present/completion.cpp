// Answers of /v1/completions.
#include <boost/json.hpp>

#include "server/present/openai.h"
#include "server/requests/completion_request.h"

namespace reckoner {
namespace {

namespace json = boost::json;

struct CompletionForm {
  AnswerForm answer;
  bool has_logprobs = false;
  std::size_t n = 1;
  std::vector<std::string> prompt_texts;  // empty: no echo

  std::string echoed(std::size_t choice) const { return prompt_texts.empty() ? std::string() : prompt_texts[choice / n]; }
};

json::object choice_object(std::size_t index, std::string text, const std::string& finish) {
  json::object choice{{"index", index}, {"text", std::move(text)}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (!finish.empty()) choice["finish_reason"] = finish;
  return choice;
}

std::vector<ChoiceLogprob> all_logprobs(const Choice& choice) {
  std::vector<ChoiceLogprob> all = choice.prompt_logprobs;
  all.insert(all.end(), choice.logprobs.begin(), choice.logprobs.end());
  return all;
}

class CompletionBody : public Presenter {
 public:
  CompletionBody(const Service& service, std::shared_ptr<Exchange> exchange, CompletionForm form)
      : tokenizer_(service.tokenizer), exchange_(std::move(exchange)), form_(std::move(form)) {}

  void end(const std::vector<const Choice*>& choices, const Usage& usage) override {
    json::array array;
    for (const Choice* choice : choices) {
      const std::string echo = form_.echoed(array.size());
      json::object object = choice_object(array.size(), echo + choice->content, choice->finish_reason);
      std::int64_t offset = 0;
      if (form_.has_logprobs) object["logprobs"] = completion_logprobs(tokenizer_, all_logprobs(*choice), offset);
      if (choice->stopped_by) object["stop_reason"] = *choice->stopped_by;
      array.push_back(std::move(object));
    }
    json::object body = form_.answer.head("text_completion");
    body["choices"] = std::move(array);
    body["usage"] = usage_object(usage);
    exchange_->respond({.body = json::serialize(body)});
  }
  void fail(const ApiError& error) override { exchange_->respond(to_response(error)); }

 private:
  const Tokenizer& tokenizer_;
  std::shared_ptr<Exchange> exchange_;
  CompletionForm form_;
};

class CompletionStream : public Presenter {
 public:
  CompletionStream(const Service& service, std::shared_ptr<Exchange> exchange, CompletionForm form, std::size_t choices)
      : tokenizer_(service.tokenizer), stream_(std::move(exchange)), form_(std::move(form)), offsets_(choices) {}

  void begin() override {
    stream_.begin();
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      if (!form_.echoed(i).empty()) send(choice_object(i, form_.echoed(i), ""), {});
    }
  }
  void update(std::size_t index, const ChoiceUpdate& update, const Usage& so_far) override {
    const bool has_logprobs = form_.has_logprobs && !update.logprobs.empty();
    if (update.delta.content.empty() && !has_logprobs && update.finish_reason.empty()) return;
    json::object choice = choice_object(index, update.delta.content, update.finish_reason);
    if (has_logprobs) choice["logprobs"] = completion_logprobs(tokenizer_, update.logprobs, offsets_[index]);
    send(std::move(choice), so_far);
  }
  void end(const std::vector<const Choice*>& /*choices*/, const Usage& usage) override {
    stream_.end(form_.answer, "text_completion", usage);
  }
  void fail(const ApiError& error) override { stream_.fail(error); }

 private:
  void send(json::object choice, const Usage& usage) { stream_.send(form_.answer.chunk("text_completion", std::move(choice), usage)); }

  const Tokenizer& tokenizer_;
  EventStream stream_;
  CompletionForm form_;
  std::vector<std::int64_t> offsets_;  // of each choice's next token
};

}  // namespace

std::unique_ptr<Presenter> completion_presenter(const Service& service, std::shared_ptr<Exchange> exchange,
                                                const CompletionRequest& request, std::vector<std::string> prompt_texts) {
  CompletionForm form{.answer = {.id = new_id("cmpl-"),
                                 .object = "text_completion",
                                 .model = service.model_name(),
                                 .created = unix_seconds(),
                                 .include_usage = request.options.include_usage,
                                 .continuous_usage = request.options.continuous_usage},
                      .has_logprobs = request.options.logprobs.has_value(),
                      .n = static_cast<std::size_t>(request.options.n),
                      .prompt_texts = std::move(prompt_texts)};
  if (!request.options.stream) return std::make_unique<CompletionBody>(service, std::move(exchange), std::move(form));
  return std::make_unique<CompletionStream>(service, std::move(exchange), std::move(form),
                                            request.prompts.size() * static_cast<std::size_t>(request.options.n));
}

}  // namespace reckoner
