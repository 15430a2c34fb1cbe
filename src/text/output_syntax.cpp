#include "text/output_syntax.h"

#include <algorithm>

#include "base/check.h"

namespace reckoner {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kMaxNameBytes = 256;

constexpr CallSyntax kNone = {};
constexpr CallSyntax kGlm = {.call_open = "<tool_call>",
                             .call_close = "</tool_call>",
                             .parameter_open = "<arg_key>",
                             .value_open = "<arg_value>",
                             .value_close = "</arg_value>"};
constexpr CallSyntax kDeepseekV32 = {.section_open = "<｜DSML｜function_calls>",
                                     .section_close = "</｜DSML｜function_calls>",
                                     .call_open = "<｜DSML｜invoke name=\"",
                                     .call_close = "</｜DSML｜invoke>",
                                     .head_end = ">",
                                     .parameter_open = "<｜DSML｜parameter name=\"",
                                     .value_open = ">",
                                     .value_close = "</｜DSML｜parameter>"};
constexpr CallSyntax kDeepseekV3 = {.section_open = "<｜tool▁calls▁begin｜>",
                                    .section_close = "<｜tool▁calls▁end｜>",
                                    .call_open = "<｜tool▁call▁begin｜>",
                                    .call_close = "<｜tool▁call▁end｜>",
                                    .head_end = "<｜tool▁sep｜>"};
constexpr CallSyntax kKimi = {.section_open = "<|tool_calls_section_begin|>",
                              .section_close = "<|tool_calls_section_end|>",
                              .call_open = "<|tool_call_begin|>",
                              .call_close = "<|tool_call_end|>",
                              .head_end = "<|tool_call_argument_begin|>"};

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Looser than OpenAI's rule for names, so that a model's slip stays a call; but no sentence and no JSON.
bool is_name(std::string_view text) {
  const auto is_odd = [](char c) {
    return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F || std::string_view("<>{}[]()\"'`\\,;=").find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kMaxNameBytes && std::none_of(text.begin(), text.end(), is_odd);
}

HeadReading named(std::string_view name, std::size_t size_bytes) {
  if (!is_name(name)) return {.state = HeadState::none};
  return {.state = HeadState::complete, .head = {.name = std::string(name)}, .size_bytes = size_bytes};
}

// "name", then the first parameter or the end of the call; a newline may stand between.
HeadReading read_glm(std::string_view text) {
  for (const std::string_view mark : {kGlm.parameter_open, kGlm.call_close}) {
    if (!text.ends_with(mark)) continue;
    const std::string_view name = text.substr(0, text.size() - mark.size());
    return named(trimmed(name), name.size());
  }
  return {};
}

// name">
HeadReading read_deepseek_v32(std::string_view text) {
  if (!text.ends_with('>')) return {};
  const std::string_view name = trimmed(text.substr(0, text.size() - 1));
  if (!name.ends_with('"')) return {.state = HeadState::none};
  return named(name.substr(0, name.size() - 1), text.size());
}

// "name<sep>" and JSON (V3.1), or "function<sep>name" and a newline before JSON in a fence (V3, R1).
HeadReading read_deepseek_v3(std::string_view text) {
  constexpr std::string_view kFence = "```json";
  const std::size_t mark = text.find(kDeepseekV3.head_end);
  if (mark == std::string_view::npos) return {};
  const std::string_view kind = trimmed(text.substr(0, mark));
  if (kind != "function") return named(kind, text.size());
  const std::string_view rest = text.substr(mark + kDeepseekV3.head_end.size());
  if (rest.ends_with('{')) {
    const std::string_view name = trimmed(rest.substr(0, rest.size() - 1));
    return named(name.empty() ? kind : name, text.size() - 1);
  }
  if (rest.ends_with(kFence)) return named(trimmed(rest.substr(0, rest.size() - kFence.size())), text.size());
  return {};
}

// "functions.name:index<mark>": all of it is the id.
HeadReading read_kimi(std::string_view text) {
  constexpr std::string_view kPrefix = "functions.";
  if (!text.ends_with(kKimi.head_end)) return {};
  const std::string_view id = trimmed(text.substr(0, text.size() - kKimi.head_end.size()));
  std::string_view name = id.substr(0, id.rfind(':'));
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  HeadReading reading = named(name, text.size());
  if (!is_name(id)) reading.state = HeadState::none;
  reading.head.id = id;
  return reading;
}

// name" string="true
std::optional<ParameterHead> read_dsml_parameter(std::string_view text) {
  const std::size_t quote = text.find('"');
  if (quote == std::string_view::npos) return std::nullopt;
  ParameterHead head{.name = std::string(text.substr(0, quote))};
  const std::string_view attributes = trimmed(text.substr(quote + 1));
  if (attributes == "string=\"true\"") {
    head.kind = ValueKind::text;
  } else if (attributes == "string=\"false\"") {
    head.kind = ValueKind::json;
  } else if (!attributes.empty()) {
    return std::nullopt;
  }
  return head;
}

// key</arg_key>
std::optional<ParameterHead> read_glm_parameter(std::string_view text) {
  constexpr std::string_view kKeyClose = "</arg_key>";
  const std::string_view head = trimmed(text);
  if (!head.ends_with(kKeyClose)) return std::nullopt;
  const std::string_view key = trimmed(head.substr(0, head.size() - kKeyClose.size()));
  if (key.find(kKeyClose) != std::string_view::npos) return std::nullopt;
  return ParameterHead{.name = std::string(key)};
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

const CallSyntax& call_syntax(OutputFormat format) {
  switch (format) {
    case OutputFormat::plain:
      return kNone;
    case OutputFormat::glm:
      return kGlm;
    case OutputFormat::deepseek_v32:
      return kDeepseekV32;
    case OutputFormat::deepseek_v3:
      return kDeepseekV3;
    case OutputFormat::kimi_k2:
      return kKimi;
  }
  CHECK(false, "no such output format");
}

HeadReading read_call_head(OutputFormat format, std::string_view text) {
  switch (format) {
    case OutputFormat::plain:
      return {.state = HeadState::none};
    case OutputFormat::glm:
      return read_glm(text);
    case OutputFormat::deepseek_v32:
      return read_deepseek_v32(text);
    case OutputFormat::deepseek_v3:
      return read_deepseek_v3(text);
    case OutputFormat::kimi_k2:
      return read_kimi(text);
  }
  CHECK(false, "no such output format");
}

std::optional<ParameterHead> read_parameter_head(OutputFormat format, std::string_view text) {
  return format == OutputFormat::deepseek_v32 ? read_dsml_parameter(text) : read_glm_parameter(text);
}

OutputFormat output_format_for(std::string_view model_type, std::string_view chat_template) {
  // The template first: DeepSeek-V3.2-Exp calls itself deepseek_v32 and writes V3.1's tokens.
  if (contains(chat_template, kKimi.section_open)) return OutputFormat::kimi_k2;
  if (contains(chat_template, "｜DSML｜")) return OutputFormat::deepseek_v32;
  if (contains(chat_template, kDeepseekV3.section_open)) return OutputFormat::deepseek_v3;
  if (contains(chat_template, kGlm.parameter_open)) return OutputFormat::glm;
  if (model_type.starts_with("glm_moe") || model_type.starts_with("glm4_moe")) return OutputFormat::glm;
  if (model_type == "deepseek_v32") return OutputFormat::deepseek_v32;
  if (model_type.starts_with("deepseek_v")) return OutputFormat::deepseek_v3;
  if (model_type.starts_with("kimi_k2")) return OutputFormat::kimi_k2;
  return OutputFormat::plain;
}

}  // namespace reckoner
