// A stand-in with the interface of text/output_parser.h, which takes its place: reasoning is told apart, tool calls stay text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reckoner {

struct ToolCallDelta {
  std::size_t index;
  std::string id;
  std::string name;
  std::string arguments;
};

struct OutputDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> tool_calls;
  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};

enum class OutputFormat : std::uint8_t { plain };
inline OutputFormat output_format_for(std::string_view, std::string_view) { return OutputFormat::plain; }

enum class OutputStart : std::uint8_t { answer, reasoning };
inline OutputStart output_start_after(std::string_view prompt) {
  return prompt.ends_with("<think>") ? OutputStart::reasoning : OutputStart::answer;
}

struct OutputParserOptions {
  OutputFormat format = OutputFormat::plain;
  std::string tools_json = {};
  OutputStart start = OutputStart::answer;
  std::string call_id_prefix = {};
};

class OutputParser {
 public:
  static OutputParser open(const OutputParserOptions& options) { return OutputParser(options.start); }

  OutputDelta push(std::string_view text) {
    held_ += text;
    OutputDelta delta;
    if (start_ == OutputStart::reasoning) {
      const std::size_t close = held_.find("</think>");
      if (close == std::string::npos) return delta;
      delta.reasoning = held_.substr(0, close);
      held_.erase(0, close + 8);
      start_ = OutputStart::answer;
    }
    delta.content = std::exchange(held_, {});
    return delta;
  }
  OutputDelta finish() {
    OutputDelta delta;
    (start_ == OutputStart::reasoning ? delta.reasoning : delta.content) = std::exchange(held_, {});
    return delta;
  }

 private:
  explicit OutputParser(OutputStart start) : start_(start) {}
  OutputStart start_;
  std::string held_;
};

}  // namespace reckoner
