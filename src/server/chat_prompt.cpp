#include "server/chat_prompt.h"

namespace reckoner {
namespace {

// tool_choice "none": the model is not told of any.
const std::string& tools_for_model(const ChatRequest& request) {
  static const std::string kNone;
  return request.tool_choice.kind == ToolChoice::Kind::none ? kNone : request.tools_json;
}

}  // namespace

// The one place that knows what cannot be enforced yet.
Status check_constraints(const ChatRequest& request) {
  using Kind = ToolChoice::Kind;
  if (request.tool_choice.kind == Kind::required || request.tool_choice.kind == Kind::named)
    return Error{"request body: field 'tool_choice': a call cannot be enforced here yet", "use 'auto' or 'none'"};
  return check_format(request.format);
}

Status check_format(const AnswerFormat& format) {
  if (format.kind == AnswerFormat::Kind::text) return {};
  return Error{"request body: field '" + format.field + "': structured output is not supported yet", "leave it out"};
}

Result<std::string> render_chat(const Service& service, const ChatRequest& request) {
  const Result<std::string> prompt = service.tokenizer.apply_chat_template(
      {.messages_json = messages_json(request.messages),
       .tools_json = tools_for_model(request),
       .kwargs_json = request.template_kwargs_json,
       .generation_prompt = request.add_generation_prompt ? GenerationPrompt::add : GenerationPrompt::none});
  if (!prompt)
    return Error{"request body: field 'messages': the chat template refuses them: " + prompt.error().what,
                 "change the messages, or chat_template_kwargs"};
  return prompt;
}

Result<GenerationPlan> plan_chat(const Service& service, const ChatRequest& request) {
  TRY(check_constraints(request));
  const std::string prompt = TRY(render_chat(service, request));
  const std::vector<TokenId> ids = TRY(service.tokenizer.encode(prompt));
  GenerationPlan plan{.prompts = {}, .options = request.options, .parser = {}, .one_call_only = !request.parallel_tool_calls};
  plan.prompts.emplace_back(ids.begin(), ids.end());
  plan.parser = OutputParserOptions{
      .format = service.output_format, .tools_json = tools_for_model(request), .start = output_start_after(prompt), .call_id_prefix = {}};
  return plan;
}

}  // namespace reckoner
