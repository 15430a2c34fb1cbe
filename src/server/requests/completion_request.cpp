#include "server/requests/completion_request.h"

#include <fmt/format.h>

#include <algorithm>

namespace reckoner {
namespace {

std::vector<KnownField> completion_fields() {
  std::vector<KnownField> fields = {{"model"},
                                    {"prompt"},
                                    {"echo"},
                                    {"logprobs"},
                                    {"add_special_tokens"},
                                    {"response_format"},
                                    {"structured_outputs"},
                                    {"suffix", FieldUse::absent}};
  const std::span<const KnownField> shared = option_fields();
  fields.insert(fields.end(), shared.begin(), shared.end());
  return fields;
}

Result<std::vector<std::int32_t>> read_ids(const std::vector<JsonNode>& nodes, const RequestLimits& limits) {
  std::vector<std::int32_t> ids;
  for (const JsonNode& node : nodes) {
    const std::int64_t id = TRY(node.as_int64(0, limits.vocab - 1));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

Result<CompletionPrompt> read_prompt(const JsonNode& node, const RequestLimits& limits) {
  if (node.is_string()) {
    const std::string text = TRY(node.as_string());
    return CompletionPrompt(text);
  }
  if (!node.is_array()) return node.unexpected("a string or an array of token ids");
  const std::vector<JsonNode> nodes = TRY(node.as_array());
  const std::vector<std::int32_t> ids = TRY(read_ids(nodes, limits));
  return CompletionPrompt(ids);
}

// "text", [1, 2], ["text", "text"] or [[1, 2], [3]]
Result<std::vector<CompletionPrompt>> read_prompts(const JsonNode& field, const RequestLimits& limits) {
  std::vector<CompletionPrompt> prompts;
  std::vector<JsonNode> nodes = {field};
  if (field.is_array()) {
    const std::vector<JsonNode> elements = TRY(field.as_array());
    if (elements.empty()) return field.error("expected a prompt, found none", "send some text or token ids");
    if (elements.front().is_string() || elements.front().is_array()) nodes = elements;
  }
  if (nodes.size() > kMaxPrompts) return field.unexpected(fmt::format("at most {} prompts", kMaxPrompts));
  for (const JsonNode& node : nodes) {
    CompletionPrompt prompt = TRY(read_prompt(node, limits));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

Result<CompletionRequest> read_completion_request(std::string_view body, const RequestLimits& limits) {
  const JsonDocument document = TRY(parse_body(body));
  const JsonNode root = document.root();
  TRY(check_fields(root, completion_fields()));
  CompletionRequest request;
  request.model = TRY(read_text(root, "model", ""));
  const JsonNode prompt = TRY(required_field(root, "prompt"));
  request.prompts = TRY(read_prompts(prompt, limits));
  request.echo = TRY(read_flag(root, "echo", false));
  request.add_special_tokens = TRY(read_flag(root, "add_special_tokens", true));
  request.format = TRY(read_answer_format(root));
  request.options = TRY(read_options(root, limits));
  const std::int64_t by_default = std::min(kDefaultCompletionTokens, limits.max_context);
  request.options.max_tokens = TRY(read_integer(root, "max_tokens", 1, limits.max_context, by_default));
  const std::int64_t logprobs = TRY(read_integer(root, "logprobs", 0, kMaxTopLogprobs, -1));
  if (logprobs >= 0) request.options.logprobs = logprobs;
  request.options.prompt_logprobs = request.echo && request.options.logprobs;
  if (request.options.prompt_logprobs && request.options.stream)
    return root.required("echo")->error("streams do not have the prompt's logprobs", "leave out echo, logprobs or stream");
  return request;
}

}  // namespace reckoner
