#include "cli/prompt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/text_format.h"

namespace reckoner {
namespace {

namespace json = boost::json;

// --template-vars as an object, with what --no-think stands for.
Result<json::object> template_variables(const TemplateOptions& options) {
  json::object variables;
  if (!options.variables_json.empty()) {
    const JsonDocument document = TRY(parse_json(options.variables_json, "--template-vars"));
    if (!document.root().is_object()) {
      return Error{fmt::format("--template-vars: expected a JSON object, found {}", document.root().describe()),
                   "for example --template-vars '{\"enable_thinking\": false}'"};
    }
    variables = document.root().value().as_object();
  }
  if (!options.no_think) return variables;
  if (const json::value* given = variables.if_contains("enable_thinking"); given != nullptr && *given != json::value(false)) {
    return Error{"--no-think sets enable_thinking to false, and --template-vars sets it to something else", "leave one of them out"};
  }
  variables["enable_thinking"] = false;
  return variables;
}

Result<TemplateInputs> inputs_with(const TemplateOptions& options, std::string tools_json) {
  const json::object variables = TRY(template_variables(options));
  return TemplateInputs{.tools_json = std::move(tools_json), .kwargs_json = variables.empty() ? "" : json::serialize(variables)};
}

}  // namespace

void add_template_options(CLI::App& app, TemplateOptions& options) {
  app.add_option("--tools", options.tools_file, "A JSON array of tools, as in OpenAI's API")->option_text("FILE")->group("Prompt");
  app.add_flag("--no-think", options.no_think, "Ask the template for an answer without reasoning\n(enable_thinking=false)")
      ->option_text(" ")
      ->group("Prompt");
  app.add_option("--template-vars", options.variables_json, "Further variables of the chat template, a JSON object")
      ->option_text("JSON")
      ->group("Prompt");
}

void Conversation::add(std::string_view role, std::string_view content) {
  messages_.push_back(json::serialize(json::object{{"role", role}, {"content", valid_utf8(content)}}));
}

void Conversation::add_answer(std::string_view content, std::string_view reasoning) {
  json::object message{{"role", "assistant"}, {"content", valid_utf8(content)}};
  if (!reasoning.empty()) message["reasoning_content"] = valid_utf8(reasoning);
  messages_.push_back(json::serialize(message));
}

std::string Conversation::json() const { return fmt::format("[{}]", fmt::join(messages_, ", ")); }

Result<std::string> read_json_array(const std::string& path) {
  std::string text = TRY(read_text_file(path, kMaxJsonBytes));
  const JsonDocument document = TRY(parse_json(text, path));
  if (document.root().is_array()) return text;
  return Error{fmt::format("{}: expected a JSON array, found {}", path, document.root().describe()),
               "write [ ... ] around it, as in OpenAI's API"};
}

Result<TemplateInputs> read_template_inputs(const TemplateOptions& options) {
  std::string tools;
  if (!options.tools_file.empty()) tools = TRY(read_json_array(options.tools_file));
  return inputs_with(options, std::move(tools));
}

Result<std::string> render(const Tokenizer& tokenizer, const std::string& messages_json, const TemplateInputs& inputs) {
  return tokenizer.apply_chat_template(
      {.messages_json = messages_json, .tools_json = inputs.tools_json, .kwargs_json = inputs.kwargs_json});
}

Status report_inert_no_think(const Tokenizer& tokenizer, const std::string& messages_json, const TemplateOptions& options,
                             Console& console) {
  if (!options.no_think) return {};
  TemplateOptions without = options;
  without.no_think = false;
  const TemplateInputs with_flag = TRY(inputs_with(options, ""));
  const TemplateInputs without_flag = TRY(inputs_with(without, ""));
  const std::string one = TRY(render(tokenizer, messages_json, with_flag));
  const std::string other = TRY(render(tokenizer, messages_json, without_flag));
  if (one == other) console.note("--no-think has no effect: this model's prompt is the same without it");
  return {};
}

Result<std::string> read_stdin() {
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error{fmt::format("stdin: {}", std::strerror(errno)), "check where the input comes from"};
    if (count == 0) break;
    text.append(buffer, static_cast<std::size_t>(count));
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace reckoner
