// OutputParser: tells apart what a model thinks, what it answers and which tools it calls, while its text arrives in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace reckoner {

struct ToolCallDelta {
  std::size_t index;  // which call of this answer, from 0
  std::string id;     // with the first delta of a call, as is the name
  std::string name;
  std::string arguments;  // the next piece of a JSON object's text
};

// What has become certain. What was given out is never taken back.
struct OutputDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> tool_calls;  // in the order of the text; successive deltas of one call are one

  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};

// How a model writes reasoning and calls.
enum class OutputFormat : std::uint8_t {
  plain,         // no calls, and no reasoning unless the prompt opened it
  glm,           // GLM-4.5 and later: <tool_call>name<arg_key>..</arg_key><arg_value>..</arg_value></tool_call>
  deepseek_v32,  // DeepSeek-V3.2: invoke and parameter tags with the DSML mark
  deepseek_v3,   // DeepSeek-V3, R1 and V3.1: tokens around JSON, which V3 and R1 write in a code fence
  kimi_k2,       // Kimi-K2 and K2.5: tokens around JSON; the call's id carries the function's name
};

// By the model's chat template, which says what the model is asked to write, else by config.json's model_type.
OutputFormat output_format_for(std::string_view model_type, std::string_view chat_template);

// What the text begins with. An answer may still begin with "<think>" of its own, except in the plain format.
enum class OutputStart : std::uint8_t { answer, reasoning };

inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";
// Whether `text` ends with it; white space may follow.
bool ends_with_tag(std::string_view text, std::string_view tag);
// Reasoning if the prompt ends with "<think>".
OutputStart output_start_after(std::string_view prompt);

struct OutputParserOptions {
  OutputFormat format = OutputFormat::plain;
  // The request's tools as in OpenAI's chat API. Empty, "null" or "[]" (and so for tool_choice "none"): no call is looked for, and
  // text that looks like one is content.
  std::string tools_json = {};
  OutputStart start = OutputStart::answer;
  // Calls are named by this and their index. Empty: something random. Kimi's calls bring their own ids.
  std::string call_id_prefix = {};
};

// Where the text is cut into pieces changes nothing but when something is given out: the deltas together are the same.
//
// - Reasoning is what stands before "</think>"; the tag and the white space around it are in neither part. Reasoning that never
//   ends stays reasoning. A call of one of the request's tools ends it too.
// - Content is what is left. White space next to a call is dropped where the content would begin or end with it.
// - Arguments that are written as text (GLM; DeepSeek-V3.2 says it itself) become JSON by the tool's schema: a string is the raw text,
//   anything else the JSON that was written if it is valid, else a string. An unknown tool's arguments are strings.
// - Text that begins like a call and is none, and what stands in a call where nothing should, is content. Only the tokens that open
//   and close a list of calls, and a call, are dropped.
// - A call that the text does not finish keeps what was parsed; if it ends amid an argument, the JSON is left open, so that nobody
//   takes the call for a whole one.
//
// Feed it decoded text with special tokens skipped: none of the formats' tags are special. Move-only.
class OutputParser {
 public:
  static OutputParser open(const OutputParserOptions& options);
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;
  ~OutputParser();

  // Takes the next piece. A character cut in two is held back until it is whole.
  OutputDelta push(std::string_view text);
  // The end of the text: gives what was held back. Nothing may be pushed afterwards; a second call gives nothing.
  OutputDelta finish();
  // Whether what comes next belongs to the reasoning.
  bool reasoning() const;

 private:
  class Machine;
  explicit OutputParser(std::unique_ptr<Machine> machine);

  std::unique_ptr<Machine> machine_;
};

}  // namespace reckoner
