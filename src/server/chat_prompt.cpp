#include "server/chat_prompt.h"

namespace reckoner {
namespace {

// tool_choice "none": the model is not told of any.
const std::string& tools_for_model(const ChatRequest& request) {
  static const std::string kNone;
  return request.tool_choice.kind == ToolChoice::Kind::none ? kNone : request.tools_json;
}

}  // namespace

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
  const std::string prompt = TRY(render_chat(service, request));
  const std::vector<TokenId> ids = TRY(service.tokenizer.encode(prompt));
  GenerationPlan plan{.prompts = {}, .options = request.options, .parser = {}, .one_call_only = !request.parallel_tool_calls};
  plan.prompts.emplace_back(ids.begin(), ids.end());
  plan.parser = OutputParserOptions{
      .format = service.output_format, .tools_json = tools_for_model(request), .start = output_start_after(prompt), .call_id_prefix = {}};
  plan.constraints = TRY(constrain_answers(service,
                                           {.format = request.format,
                                            .tools = request.tools,
                                            .choice = request.tool_choice,
                                            .count = request.parallel_tool_calls ? CallCount::one_or_more : CallCount::one,
                                            .prompt = prompt},
                                           static_cast<std::size_t>(request.options.n)));
  return plan;
}

}  // namespace reckoner
