// Bytes as a model's output: however it is cut the parts are the same, no text is lost, and arguments are the beginning of JSON.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/json_text.h"
#include "text/output_parser.h"

namespace {

using namespace reckoner;

constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"f","parameters":{"properties":{"n":{"type":"integer"},"s":{"type":["string","null"]},)"
    R"("t":{"type":"string"},"o":{"type":"object"},"a":{}}}}},{"name":"g"}])";

// What random bytes would not come upon.
constexpr std::string_view kWords[] = {"<think>",
                                       "</think>",
                                       "<tool_call>",
                                       "</tool_call>",
                                       "<arg_key>",
                                       "</arg_key>",
                                       "<arg_value>",
                                       "</arg_value>",
                                       "<｜DSML｜function_calls>",
                                       "</｜DSML｜function_calls>",
                                       "<｜DSML｜invoke name=\"",
                                       "</｜DSML｜invoke>",
                                       "<｜DSML｜parameter name=\"",
                                       "</｜DSML｜parameter>",
                                       "\" string=\"true\">",
                                       "\" string=\"false\">",
                                       "\">",
                                       "<｜tool▁calls▁begin｜>",
                                       "<｜tool▁calls▁end｜>",
                                       "<｜tool▁call▁begin｜>",
                                       "<｜tool▁call▁end｜>",
                                       "<｜tool▁sep｜>",
                                       "function<｜tool▁sep｜>",
                                       "```json",
                                       "<|tool_calls_section_begin|>",
                                       "<|tool_calls_section_end|>",
                                       "<|tool_call_begin|>",
                                       "<|tool_call_end|>",
                                       "<|tool_call_argument_begin|>",
                                       "functions.f:0",
                                       "{\"a\": [1, \"é\"]}",
                                       "null"};

std::string text_of(const std::uint8_t* data, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] >= 0xE0) {
      text += kWords[data[i] - 0xE0];
    } else {
      text += static_cast<char>(data[i]);
    }
  }
  return text;
}

struct Whole {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> calls;
};

void add(Whole& whole, const OutputDelta& delta) {
  whole.reasoning += delta.reasoning;
  whole.content += delta.content;
  for (const ToolCallDelta& call : delta.tool_calls) {
    if (call.index == whole.calls.size()) {
      CHECK(!call.id.empty() && !call.name.empty());
      whole.calls.push_back(call);
    } else {
      CHECK(call.index + 1 == whole.calls.size() && call.id.empty() && call.name.empty());
      whole.calls.back().arguments += call.arguments;
    }
  }
}

// Pieces of `sizes` bytes, round and round.
Whole parse(const OutputParserOptions& options, std::string_view text, const std::vector<std::size_t>& sizes) {
  OutputParser parser = OutputParser::open(options);
  Whole whole;
  for (std::size_t i = 0; !text.empty(); ++i) {
    const std::size_t size = std::min(sizes[i % sizes.size()], text.size());
    add(whole, parser.push(text.substr(0, size)));
    text.remove_prefix(size);
  }
  add(whole, parser.finish());
  return whole;
}

void check_same(const Whole& a, const Whole& b) {
  CHECK(a.reasoning == b.reasoning && a.content == b.content && a.calls.size() == b.calls.size());
  for (std::size_t i = 0; i < a.calls.size(); ++i) {
    const ToolCallDelta& x = a.calls[i];
    const ToolCallDelta& y = b.calls[i];
    CHECK(x.id == y.id && x.name == y.name && x.arguments == y.arguments);
  }
}

void check_arguments(const Whole& whole) {
  for (const ToolCallDelta& call : whole.calls) {
    JsonPrefix prefix;
    for (const char byte : call.arguments) CHECK(prefix.push(byte), call.arguments);
  }
}

// Without the characters of the reasoning tags, which are dropped, and white space, some of which is.
std::string essence(std::string text) {
  std::erase_if(text, [](char c) { return std::string_view("</think> \t\r\n").find(c) != std::string_view::npos; });
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const OutputParserOptions options{.format = static_cast<OutputFormat>(data[0] % 5),
                                    .tools_json = data[0] & 0x40 ? "" : kTools,
                                    .start = data[0] & 0x80 ? OutputStart::reasoning : OutputStart::answer,
                                    .call_id_prefix = "id"};
  const std::string text = text_of(data + 2, size - 2);
  const Whole whole = parse(options, text, {std::max<std::size_t>(text.size(), 1)});
  check_same(whole, parse(options, text, {1}));
  check_same(whole, parse(options, text, {1 + data[1] % 16u, 1 + data[1] / 16u}));
  check_arguments(whole);
  if (whole.calls.empty()) CHECK(essence(whole.reasoning + whole.content) == essence(text));
  return 0;
}
