// The tokenizer against the embedding, and whether its template renders.
#include <fmt/format.h>

#include <system_error>

#include "diagnose/lint/checks.h"

namespace reckoner::lint {
namespace {

constexpr const char* kMessages =
    R"([{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "Which is larger, 7 or 9?"}])";
constexpr const char* kTools = R"([{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])";

bool has_template(const LintInput& input) {
  std::error_code error;
  if (std::filesystem::exists(input.folder / "chat_template.jinja", error)) return true;
  if (!input.tokenizer_config.json || !input.tokenizer_config.json->root().is_object()) return false;
  const Result<std::optional<JsonNode>> own = input.tokenizer_config.json->root().optional("chat_template");
  return own && own->has_value();
}

// Rows of the embedding: of its tensor, or as config.json has it.
std::int64_t embedding_rows(const LintInput& input) {
  for (const LintModule& module : input.modules) {
    if (module.leaf() == "embed_tokens" && module.data() != nullptr && module.data()->shape.rank() == 2) return module.data()->shape[0];
  }
  return input.model ? input.model->vocab_size : 0;
}

}  // namespace

void check_tokenizer(const LintInput& input, LintReport& report) {
  if (!input.has_tokenizer_files) return report.add("tokenizer-missing", {"tokenizer.json", "not there, nor tiktoken.model or vocab.json"});
  // The tokenizer reads config.json too.
  const bool known =
      report.has("lfs-pointer") || (!input.config.error.empty() && input.tokenizer_error.find("config.json") != std::string::npos);
  if (!input.tokenizer_error.empty() && !known) report.add("tokenizer-unreadable", {"tokenizer", input.tokenizer_error});
  const std::int64_t rows = embedding_rows(input);
  if (!input.tokenizer || rows == 0 || static_cast<std::int64_t>(input.tokenizer->vocab_size()) <= rows) return;
  report.add("vocab-exceeds-embedding",
             {"tokenizer", fmt::format("{} tokens; the embedding has {} rows", input.tokenizer->vocab_size(), rows)});
}

void check_template(const LintInput& input, LintReport& report) {
  if (!input.tokenizer) return;
  if (!has_template(input)) return report.add("chat-template-missing", {"chat_template.jinja", "not there, nor in tokenizer_config.json"});
  const Result<std::string> plain = input.tokenizer->apply_chat_template({.messages_json = kMessages});
  if (!plain) return report.add("chat-template-fails", {"chat template", plain.error().what});
  const Result<std::string> with_tools = input.tokenizer->apply_chat_template({.messages_json = kMessages, .tools_json = kTools});
  if (!with_tools) report.add("chat-template-fails-with-tools", {"chat template", with_tools.error().what});
}

}  // namespace reckoner::lint
