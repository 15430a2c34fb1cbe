// POST /tokenize, /detokenize and /apply-template: what the model sees of a text, and the way back.
#include <boost/json.hpp>

#include "server/chat_prompt.h"
#include "server/routes/routes.h"

namespace reckoner {
namespace {

namespace json = boost::json;

using Answer = Result<json::object>;

void answer(Service& service, Exchange& exchange, const Answer& result) {
  if (!result) return refuse(service, exchange, to_api_error(result.error()));
  exchange.respond({.body = json::serialize(*result)});
}

constexpr KnownField kTokenizeFields[] = {
    {"model"}, {"prompt"}, {"text"}, {"add_special_tokens"}, {"return_token_strs"}, {"content", FieldUse::read}};

// A text, under the names that other servers have for it; a chat has its own rules.
Result<std::string> text_to_tokenize(const Service& service, std::string_view body, bool& add_special) {
  const JsonDocument document = TRY(parse_body(body));
  const JsonNode root = document.root();
  const std::optional<JsonNode> messages = TRY(root.optional("messages"));
  if (messages) {
    add_special = false;
    const ChatRequest request = TRY(read_chat_request(body, service.limits));
    return render_chat(service, request);
  }
  TRY(check_fields(root, kTokenizeFields));
  add_special = TRY(read_flag(root, "add_special_tokens", true));
  for (const char* name : {"prompt", "text", "content"}) {
    const std::optional<JsonNode> field = TRY(root.optional(name));
    if (field) return field->as_string();
  }
  return Error{"request body: field 'prompt': missing", "add the text, or messages"};
}

Answer tokenize(const Service& service, const std::string& body) {
  bool add_special = true;
  const std::string text = TRY(text_to_tokenize(service, body, add_special));
  const std::vector<TokenId> ids = TRY(service.tokenizer.encode(text, add_special ? AddSpecialTokens::yes : AddSpecialTokens::no));
  json::array tokens(ids.begin(), ids.end());
  return json::object{{"count", ids.size()}, {"max_model_len", service.limits.max_context}, {"tokens", std::move(tokens)}};
}

constexpr KnownField kDetokenizeFields[] = {{"model"}, {"tokens"}, {"skip_special_tokens"}};
constexpr std::size_t kMaxTokens = std::size_t{1} << 22;

Answer detokenize(const Service& service, const std::string& body) {
  const JsonDocument document = TRY(parse_body(body));
  const JsonNode root = document.root();
  TRY(check_fields(root, kDetokenizeFields));
  TRY(required_field(root, "tokens"));
  const std::vector<std::int64_t> numbers = TRY(read_integers(root, "tokens", 0, service.limits.vocab - 1, kMaxTokens));
  const bool skip = TRY(read_flag(root, "skip_special_tokens", false));
  const std::vector<TokenId> ids(numbers.begin(), numbers.end());
  const std::string text = TRY(service.tokenizer.decode(ids, skip ? SpecialTokens::skip : SpecialTokens::keep));
  return json::object{{"prompt", text}};
}

Answer apply_template(const Service& service, const std::string& body) {
  const ChatRequest request = TRY(read_chat_request(body, service.limits));
  const std::string prompt = TRY(render_chat(service, request));
  return json::object{{"prompt", prompt}};
}

void handle_tokenize(Service& service, const std::shared_ptr<Exchange>& exchange) {
  answer(service, *exchange, tokenize(service, exchange->request().body));
}
void handle_detokenize(Service& service, const std::shared_ptr<Exchange>& exchange) {
  answer(service, *exchange, detokenize(service, exchange->request().body));
}
void handle_apply_template(Service& service, const std::shared_ptr<Exchange>& exchange) {
  answer(service, *exchange, apply_template(service, exchange->request().body));
}

}  // namespace

const Route kTokenizeText = {
    .method = "POST", .path = "/tokenize", .handle = handle_tokenize, .about = "Shows the tokens of a text or chat"};
const Route kDetokenizeText = {.method = "POST", .path = "/detokenize", .handle = handle_detokenize, .about = "Shows the text of tokens"};
const Route kApplyTemplate = {
    .method = "POST", .path = "/apply-template", .handle = handle_apply_template, .about = "Shows the prompt that a chat becomes"};

}  // namespace reckoner
