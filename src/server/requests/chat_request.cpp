#include "server/requests/chat_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

namespace reckoner {
namespace {

namespace json = boost::json;

std::vector<KnownField> chat_fields() {
  std::vector<KnownField> fields = {{"model"},
                                    {"messages"},
                                    {"tools"},
                                    {"tool_choice"},
                                    {"parallel_tool_calls"},
                                    {"response_format"},
                                    {"structured_outputs"},
                                    {"chat_template_kwargs"},
                                    {"include_reasoning"},
                                    {"separate_reasoning"},
                                    {"reasoning_effort"},
                                    {"add_generation_prompt"},
                                    {"max_completion_tokens"},
                                    {"logprobs"},
                                    {"top_logprobs"},
                                    {"modalities"},
                                    {"stream_reasoning", FieldUse::inert},
                                    {"verbosity", FieldUse::inert},
                                    {"continue_final_message", FieldUse::absent},
                                    {"echo", FieldUse::absent},
                                    {"add_special_tokens", FieldUse::absent},
                                    {"chat_template", FieldUse::absent},
                                    {"documents", FieldUse::absent},
                                    {"functions", FieldUse::absent},
                                    {"function_call", FieldUse::absent},
                                    {"audio", FieldUse::absent},
                                    {"prediction", FieldUse::absent},
                                    {"web_search_options", FieldUse::absent}};
  const std::span<const KnownField> shared = option_fields();
  fields.insert(fields.end(), shared.begin(), shared.end());
  return fields;
}

// This server reads text only.
Status check_modalities(const JsonNode& root) {
  const std::optional<JsonNode> field = TRY(root.optional("modalities"));
  if (!field) return {};
  for (const JsonNode& node : TRY(field->as_array())) {
    const std::string modality = TRY(node.as_string());
    if (modality != "text") return node.error(fmt::format("'{}' is not supported here", modality), "ask for text only");
  }
  return {};
}

// max_completion_tokens is the newer name of max_tokens.
Result<std::int64_t> read_max_tokens(const JsonNode& root, const RequestLimits& limits) {
  const std::int64_t older = TRY(read_integer(root, "max_tokens", 1, limits.max_context, 0));
  const std::int64_t newer = TRY(read_integer(root, "max_completion_tokens", 1, limits.max_context, 0));
  if (older != 0 && newer != 0 && older != newer)
    return root.error("max_tokens and max_completion_tokens differ, and mean the same", "send one of them");
  return std::max(older, newer);
}

Status read_logprobs(const JsonNode& root, GenerationOptions& options) {
  const bool wanted = TRY(read_flag(root, "logprobs", false));
  const std::int64_t top = TRY(read_integer(root, "top_logprobs", 0, kMaxTopLogprobs, 0));
  if (top > 0 && !wanted) return root.required("top_logprobs")->error("needs logprobs", "set logprobs to true");
  if (wanted) options.logprobs = top;
  return {};
}

// chat_template_kwargs, with what reasoning_effort says: the template knows it under that name if it knows it at all.
Result<std::string> read_template_kwargs(const JsonNode& root) {
  json::object kwargs;
  if (const std::optional<JsonNode> effort = TRY(root.optional("reasoning_effort"))) {
    static constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    const std::string value = TRY(effort->as_string());
    if (std::find(std::begin(kEfforts), std::end(kEfforts), value) == std::end(kEfforts)) return not_one_of(*effort, kEfforts);
    kwargs["reasoning_effort"] = value;
    if (value == "none") kwargs["enable_thinking"] = false;
  }
  if (const std::optional<JsonNode> given = TRY(root.optional("chat_template_kwargs"))) {
    if (!given->is_object()) return given->unexpected("an object");
    for (const auto& member : given->value().get_object()) kwargs[member.key()] = member.value();
  }
  return kwargs.empty() ? std::string() : json::serialize(kwargs);
}

Status read_reasoning_flags(const JsonNode& root, ChatRequest& request) {
  const bool include = TRY(read_flag(root, "include_reasoning", true));
  const bool separate = TRY(read_flag(root, "separate_reasoning", true));
  if (!separate) return root.required("separate_reasoning")->error("reasoning always comes apart here", "leave it out");
  request.include_reasoning = include;
  return {};
}

}  // namespace

Result<ChatRequest> read_chat_request(std::string_view body, const RequestLimits& limits) {
  const JsonDocument document = TRY(parse_body(body));
  const JsonNode root = document.root();
  TRY(check_fields(root, chat_fields()));
  ChatRequest request;
  request.model = TRY(read_text(root, "model", ""));
  const JsonNode messages = TRY(required_field(root, "messages"));
  request.messages = TRY(read_messages(messages));
  TRY(read_tools(root, request));
  request.tool_choice = TRY(read_tool_choice(root, request));
  request.parallel_tool_calls = TRY(read_flag(root, "parallel_tool_calls", true));
  request.format = TRY(read_answer_format(root));
  request.template_kwargs_json = TRY(read_template_kwargs(root));
  TRY(read_reasoning_flags(root, request));
  request.add_generation_prompt = TRY(read_flag(root, "add_generation_prompt", true));
  TRY(check_modalities(root));
  request.options = TRY(read_options(root, limits));
  request.options.max_tokens = TRY(read_max_tokens(root, limits));
  TRY(read_logprobs(root, request.options));
  return request;
}

}  // namespace reckoner
