#include "server/present/responses.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "server/present/blocks.h"
#include "server/present/openai.h"

namespace reckoner {
namespace {

namespace json = boost::json;

// What every version of the response object repeats.
struct ResponseForm {
  std::string id;
  std::string model;
  std::int64_t created = 0;
  json::object fixed;

  std::string item_id(std::size_t index) const { return fmt::format("item_{}_{}", id.substr(id.find('_') + 1), index); }
};

ResponseForm form_for(const Service& service, const ResponsesRequest& request) {
  const GenerationOptions& options = request.chat.options;
  ResponseForm form{.id = new_id("resp_"), .model = service.model_name(), .created = unix_seconds(), .fixed = {}};
  form.fixed = {{"instructions", nullptr},
                {"max_output_tokens", nullptr},
                {"metadata", json::object()},
                {"parallel_tool_calls", request.chat.parallel_tool_calls},
                {"previous_response_id", nullptr},
                {"temperature", options.sampling.temperature},
                {"tool_choice", request.chat.tool_choice.kind == ToolChoice::Kind::none ? "none" : "auto"},
                {"tools", json::parse(request.tools_json)},
                {"top_p", options.sampling.top_p},
                {"truncation", "disabled"},
                {"text", json::object{{"format", json::object{{"type", "text"}}}}}};
  if (!request.instructions.empty()) form.fixed["instructions"] = request.instructions;
  if (options.max_tokens > 0) form.fixed["max_output_tokens"] = options.max_tokens;
  return form;
}

json::object part_object(const Block& block) {
  if (block.kind == Block::Kind::reasoning) return {{"type", "reasoning_text"}, {"text", block.text}};
  return {{"type", "output_text"}, {"text", block.text}, {"annotations", json::array()}, {"logprobs", json::array()}};
}

json::object item_object(const ResponseForm& form, std::size_t index, const Block& block, const char* status) {
  json::object item{{"id", form.item_id(index)}, {"status", status}};
  if (block.kind == Block::Kind::call) {
    item["type"] = "function_call";
    item["call_id"] = block.call.id;
    item["name"] = block.call.name;
    item["arguments"] = block.text;
    return item;
  }
  json::array content;
  if (!block.text.empty()) content.push_back(part_object(block));
  item["content"] = std::move(content);
  item["type"] = block.kind == Block::Kind::text ? "message" : "reasoning";
  if (block.kind == Block::Kind::text) item["role"] = "assistant";
  if (block.kind == Block::Kind::reasoning) item["summary"] = json::array();
  return item;
}

json::object usage_numbers(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", json::object{{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.output_tokens},
          {"output_tokens_details", json::object{{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.output_tokens}};
}

json::object response_object(const ResponseForm& form, const char* status, json::array output) {
  json::object response{{"id", form.id},       {"object", "response"}, {"created_at", form.created},    {"status", status},
                        {"model", form.model}, {"error", nullptr},     {"incomplete_details", nullptr}, {"output", std::move(output)},
                        {"usage", nullptr}};
  for (const auto& field : form.fixed) response[field.key()] = field.value();
  return response;
}

json::object ended_response(const ResponseForm& form, const Choice& choice, const std::vector<Block>& blocks, const Usage& usage) {
  const bool cut = choice.finish_reason == "length";
  json::array output;
  for (const Block& block : blocks) output.push_back(item_object(form, output.size(), block, "completed"));
  json::object response = response_object(form, cut ? "incomplete" : "completed", std::move(output));
  if (cut) response["incomplete_details"] = json::object{{"reason", "max_output_tokens"}};
  response["usage"] = usage_numbers(usage);
  return response;
}

class ResponseBody : public Presenter {
 public:
  ResponseBody(std::shared_ptr<Exchange> exchange, ResponseForm form) : exchange_(std::move(exchange)), form_(std::move(form)) {}
  void end(const std::vector<const Choice*>& choices, const Usage& usage) override {
    const Choice& choice = *choices.front();
    exchange_->respond({.body = json::serialize(ended_response(form_, choice, blocks_of(choice), usage))});
  }
  void fail(const ApiError& error) override { exchange_->respond(to_response(error)); }

 private:
  std::shared_ptr<Exchange> exchange_;
  ResponseForm form_;
};

class ResponseStream : public Presenter, private BlockStream {
 public:
  ResponseStream(std::shared_ptr<Exchange> exchange, ResponseForm form) : stream_(std::move(exchange)), form_(std::move(form)) {}

  void begin() override {
    begun_ = true;
    stream_.begin();
    send("response.created", {{"response", response_object(form_, "in_progress", {})}});
    send("response.in_progress", {{"response", response_object(form_, "in_progress", {})}});
  }
  void update(std::size_t /*choice*/, const ChoiceUpdate& update, const Usage& /*so_far*/) override { add(update.delta); }
  void end(const std::vector<const Choice*>& choices, const Usage& usage) override {
    BlockStream::end();
    json::object response = ended_response(form_, *choices.front(), blocks(), usage);
    const bool cut = choices.front()->finish_reason == "length";
    send(cut ? "response.incomplete" : "response.completed", {{"response", std::move(response)}});
    stream_.end();
  }
  void fail(const ApiError& error) override {
    if (!begun_) return stream_.fail(error);
    json::object response = response_object(form_, "failed", {});
    response["error"] = json::object{{"code", "server_error"}, {"message", error.message}};
    send("response.failed", {{"response", std::move(response)}});
    stream_.end();
  }

 private:
  // "response.output_text" and the like, of what grows.
  static std::string growing(const Block& block) {
    if (block.kind == Block::Kind::call) return "response.function_call_arguments";
    return block.kind == Block::Kind::text ? "response.output_text" : "response.reasoning_text";
  }
  void open(std::size_t index, const Block& block) override {
    send("response.output_item.added", {{"output_index", index}, {"item", item_object(form_, index, block, "in_progress")}});
    if (block.kind != Block::Kind::call) send_part("response.content_part.added", index, block);
  }
  void grow(std::size_t index, const Block& block, const std::string& piece) override {
    json::object fields = place(index, block);
    fields["delta"] = piece;
    if (block.kind == Block::Kind::text) fields["logprobs"] = json::array();
    send(growing(block) + ".delta", std::move(fields));
  }
  void close(std::size_t index, const Block& block) override {
    json::object fields = place(index, block);
    fields[block.kind == Block::Kind::call ? "arguments" : "text"] = block.text;
    if (block.kind == Block::Kind::call) fields["name"] = block.call.name;
    if (block.kind == Block::Kind::text) fields["logprobs"] = json::array();
    send(growing(block) + ".done", std::move(fields));
    if (block.kind != Block::Kind::call) send_part("response.content_part.done", index, block);
    send("response.output_item.done", {{"output_index", index}, {"item", item_object(form_, index, block, "completed")}});
  }
  json::object place(std::size_t index, const Block& block) const {
    json::object fields{{"item_id", form_.item_id(index)}, {"output_index", index}};
    if (block.kind != Block::Kind::call) fields["content_index"] = 0;
    return fields;
  }
  void send_part(std::string_view type, std::size_t index, const Block& block) {
    json::object fields = place(index, block);
    fields["part"] = part_object(block);
    send(type, std::move(fields));
  }
  void send(std::string_view type, json::object fields) {
    json::object event{{"type", json::string(json::string_view(type.data(), type.size()))}, {"sequence_number", sequence_++}};
    for (auto& field : fields) event[field.key()] = std::move(field.value());
    stream_.send(event, type);
  }

  EventStream stream_;
  ResponseForm form_;
  std::int64_t sequence_ = 0;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<Presenter> responses_presenter(const Service& service, std::shared_ptr<Exchange> exchange,
                                               const ResponsesRequest& request) {
  ResponseForm form = form_for(service, request);
  if (!request.chat.options.stream) return std::make_unique<ResponseBody>(std::move(exchange), std::move(form));
  return std::make_unique<ResponseStream>(std::move(exchange), std::move(form));
}

}  // namespace reckoner
