#include "server/present/openai.h"

#include <boost/json.hpp>
#include <cmath>

#include "server/http/sse.h"

namespace reckoner {
namespace {

namespace json = boost::json;

// A token on its own, with U+FFFD for what is no whole character.
std::string token_text(const Tokenizer& tokenizer, std::int32_t token) {
  const TokenId id = static_cast<TokenId>(token);
  const Result<std::string> text = tokenizer.decode({&id, 1});
  return text ? *text : std::string();
}

json::object token_object(const Tokenizer& tokenizer, std::int32_t token, double logprob) {
  json::array bytes;
  if (const Result<std::string> piece = tokenizer.piece(static_cast<TokenId>(token))) {
    for (const char byte : *piece) bytes.push_back(static_cast<unsigned char>(byte));
  }
  return {{"token", token_text(tokenizer, token)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

std::int64_t characters(std::string_view text) {
  std::int64_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u;
  return count;
}

}  // namespace

json::object usage_object(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.output_tokens},
          {"total_tokens", usage.prompt_tokens + usage.output_tokens},
          {"prompt_tokens_details", json::object{{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", json::object{{"reasoning_tokens", usage.reasoning_tokens}}}};
}

json::object AnswerForm::head(std::string_view object_name) const {
  return {{"id", id}, {"object", json::string_view(object_name.data(), object_name.size())}, {"created", created}, {"model", model}};
}

json::object AnswerForm::chunk(std::string_view object_name, json::object choice, const Usage& so_far) const {
  json::object made = head(object_name);
  made["choices"] = json::array({std::move(choice)});
  if (include_usage) made["usage"] = nullptr;
  if (continuous_usage) made["usage"] = usage_object(so_far);
  return made;
}

json::object chat_logprobs(const Tokenizer& tokenizer, const std::vector<ChoiceLogprob>& logprobs) {
  json::array content;
  for (const ChoiceLogprob& one : logprobs) {
    json::object object = token_object(tokenizer, one.token, one.logprob);
    json::array top;
    for (const TokenLogprob& other : one.top) top.push_back(token_object(tokenizer, other.token, other.logprob));
    object["top_logprobs"] = std::move(top);
    content.push_back(std::move(object));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json::object completion_logprobs(const Tokenizer& tokenizer, const std::vector<ChoiceLogprob>& logprobs, std::int64_t& offset) {
  json::array tokens, values, tops, offsets;
  for (const ChoiceLogprob& one : logprobs) {
    const std::string text = token_text(tokenizer, one.token);
    tokens.push_back(json::string(text));
    values.push_back(std::isnan(one.logprob) ? json::value(nullptr) : json::value(one.logprob));
    json::object top;
    for (const TokenLogprob& other : one.top) top[token_text(tokenizer, other.token)] = other.logprob;
    tops.push_back(std::isnan(one.logprob) ? json::value(nullptr) : json::value(std::move(top)));
    offsets.push_back(offset);
    offset += characters(text);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

void EventStream::begin() {
  begun_ = true;
  exchange_->start({.content_type = std::string(kEventStream), .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
}

void EventStream::send(const json::object& data, std::string_view name) { exchange_->write(sse_event(json::serialize(data), name)); }
void EventStream::send_text(std::string_view data) { exchange_->write(sse_event(data)); }

void EventStream::fail(const ApiError& error) {
  if (!begun_) return exchange_->respond(to_response(error));
  exchange_->write(sse_event(error_json(error)));
  exchange_->end();
}

void EventStream::end(const AnswerForm& form, std::string_view object_name, const Usage& usage) {
  if (form.include_usage) {
    json::object chunk = form.head(object_name);
    chunk["choices"] = json::array();
    chunk["usage"] = usage_object(usage);
    send(chunk);
  }
  send_text("[DONE]");
  end();
}

}  // namespace reckoner
