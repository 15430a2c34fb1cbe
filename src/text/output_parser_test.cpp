#include "text/output_parser.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <ostream>

namespace reckoner {

void PrintTo(OutputFormat format, std::ostream* out) { *out << static_cast<int>(format); }

namespace {

constexpr const char* kTools = R"json([
{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
  "n": {"type": "integer"}, "x": {"type": "number"}, "b": {"type": "boolean"}, "t": {"type": "string"},
  "s": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "list": {"type": "array", "items": {"type": "integer"}},
  "o": {"type": "object"}, "z": {"type": "null"}, "u": {"type": ["string", "integer"]}, "e": {"enum": ["1", "2"]}, "k": {"enum": [1, 2]},
  "c": {"const": "3"}, "any": {}, "r": {"$ref": "#/$defs/Count"}, "rs": {"$ref": "#/$defs/Word"},
  "all": {"allOf": [{"type": ["string", "number"]}, {"type": ["number", "null"]}]}, "loop": {"$ref": "#/$defs/Loop"},
  "m": {"properties": {"a": {}}}},
  "$defs": {"Count": {"$ref": "#/$defs/Number"}, "Number": {"type": "integer"}, "Word": {"type": "string"},
            "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Loop"}]}}}}},
{"type": "function", "function": {"name": "now"}},
{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
  "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
{"type": "function", "function": {"name": "map", "parameters": {"type": "object", "additionalProperties": {"type": "string"}}}}])json";

struct Call {
  std::string name;
  std::string arguments;
  std::string id = {};  // empty: what the parser makes of the prefix "id-"
};
struct Case {
  const char* name;
  OutputFormat format;
  OutputStart start;
  std::string text;
  std::string reasoning;
  std::string content;
  std::vector<Call> calls = {};
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

struct Whole {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> calls;
};

// Puts the deltas together as a client does.
void add(Whole& whole, const OutputDelta& delta) {
  whole.reasoning += delta.reasoning;
  whole.content += delta.content;
  for (const ToolCallDelta& call : delta.tool_calls) {
    if (call.index == whole.calls.size()) {
      EXPECT_FALSE(call.id.empty());
      EXPECT_FALSE(call.name.empty());
      whole.calls.push_back(call);
      continue;
    }
    ASSERT_EQ(call.index + 1, whole.calls.size()) << "a call that was over goes on";
    EXPECT_TRUE(call.id.empty() && call.name.empty()) << "a call is named twice";
    EXPECT_FALSE(call.arguments.empty()) << "a delta says nothing";
    whole.calls.back().arguments += call.arguments;
  }
}

Whole parse(const OutputParserOptions& options, const std::string& text, const std::vector<std::size_t>& cuts) {
  OutputParser parser = OutputParser::open(options);
  Whole whole;
  std::size_t from = 0;
  for (const std::size_t cut : cuts) {
    add(whole, parser.push(std::string_view(text).substr(from, cut - from)));
    from = cut;
  }
  add(whole, parser.push(std::string_view(text).substr(from)));
  add(whole, parser.finish());
  EXPECT_TRUE(parser.finish().empty());
  return whole;
}

OutputParserOptions options_of(const Case& c) {
  return {.format = c.format, .tools_json = kTools, .start = c.start, .call_id_prefix = "id-"};
}

void expect_whole(const Case& c, const std::vector<std::size_t>& cuts) {
  const Whole whole = parse(options_of(c), c.text, cuts);
  EXPECT_EQ(whole.reasoning, c.reasoning);
  EXPECT_EQ(whole.content, c.content);
  ASSERT_EQ(whole.calls.size(), c.calls.size());
  for (std::size_t i = 0; i < c.calls.size(); ++i) {
    EXPECT_EQ(whole.calls[i].name, c.calls[i].name);
    EXPECT_EQ(whole.calls[i].arguments, c.calls[i].arguments);
    EXPECT_EQ(whole.calls[i].id, c.calls[i].id.empty() ? "id-" + std::to_string(i) : c.calls[i].id);
  }
}

constexpr auto kPlain = OutputFormat::plain;
constexpr auto kGlm = OutputFormat::glm;
constexpr auto kDsml = OutputFormat::deepseek_v32;
constexpr auto kV3 = OutputFormat::deepseek_v3;
constexpr auto kKimi = OutputFormat::kimi_k2;
constexpr auto kAnswer = OutputStart::answer;
constexpr auto kThinks = OutputStart::reasoning;

const Case kReasoningCases[] = {
    {"thinks", kGlm, kThinks, "I think.</think>So.", "I think.", "So."},
    {"white_space_at_the_tags", kGlm, kThinks, "\nI  think.\n\n</think>\n\nSo.\n", "I  think.", "So.\n"},
    {"nearly_tags", kGlm, kThinks, "a < b </ c </thin", "a < b </ c </thin", ""},
    {"thinks_nothing", kGlm, kThinks, "</think>So.", "", "So."},
    {"thinks_white_space", kGlm, kThinks, "  </think>", "", ""},
    {"says_nothing", kGlm, kThinks, "", "", ""},
    {"never_ends", kGlm, kThinks, "never closed ", "never closed", ""},
    {"opens_again", kKimi, kThinks, "<think>\nHm.</think>So.", "Hm.", "So."},
    {"no_thinking", kGlm, kAnswer, "So </think> be it", "", "So </think> be it"},
    {"opens_itself", kGlm, kAnswer, "<think>Hm.</think>So.", "Hm.", "So."},
    {"opens_itself_after_space", kV3, kAnswer, "\n<think>\nHm.</think>So.", "Hm.", "So."},
    {"nearly_opens", kGlm, kAnswer, " <thin", "", " <thin"},
    {"later_tag_is_text", kGlm, kAnswer, "So <think>x</think>", "", "So <think>x</think>"},
    {"keeps_space", kGlm, kAnswer, "  So.\n\n", "", "  So.\n\n"},
    {"only_space", kDsml, kAnswer, " \n", "", " \n"},
    {"plain_is_as_it_is", kPlain, kAnswer, "<think>as</think> <tool_call>now</tool_call> ", "",
     "<think>as</think> <tool_call>now</tool_call> "},
    {"plain_thinks", kPlain, kThinks, "Hm. </think> So. ", "Hm.", "So. "},
    {"characters", kGlm, kThinks, "Größe 漢字</think>😀 é", "Größe 漢字", "😀 é"},
    {"not_utf8", kGlm, kAnswer, "a\xFF\xC3", "", "a\xFF\xC3"},
};

const Case kGlmCases[] = {
    {"two_arguments",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>n</arg_key><arg_value>10</arg_value><arg_key>s</arg_key><arg_value>a <10 b</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"n": 10, "s": "a <10 b"})"}}},
    {"no_arguments", kGlm, kAnswer, "<tool_call>now</tool_call>", "", "", {{"now", "{}"}}},
    {"no_arguments_newline", kGlm, kAnswer, "<tool_call>now\n</tool_call>", "", "", {{"now", "{}"}}},
    {"newlines",
     kGlm,
     kThinks,
     "Hm.</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Łódź</arg_value>\n<arg_key>days</arg_key>\n"
     "<arg_value>3</arg_value>\n</tool_call>\n",
     "Hm.",
     "",
     {{"get_weather", R"({"city": "Łódź", "days": 3})"}}},
    {"text_around_calls",
     kGlm,
     kAnswer,
     "One.\n<tool_call>now</tool_call>\nTwo.<tool_call>now</tool_call> Three. ",
     "",
     "One.\n\nTwo. Three.",
     {{"now", "{}"}, {"now", "{}"}}},
    {"space_around_calls",
     kGlm,
     kAnswer,
     "\n<tool_call>now</tool_call>\n <tool_call>now</tool_call>\n",
     "",
     "",
     {{"now", "{}"}, {"now", "{}"}}},
    {"text_after_call_only", kGlm, kAnswer, "<tool_call>now</tool_call>\nSo.", "", "So.", {{"now", "{}"}}},
    {"string_is_raw",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>t</arg_key><arg_value> \"1\"\\\n\t\x01<tool_call></b></arg_valu> </arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"t": " \"1\"\\\n\t\u0001<tool_call></b></arg_valu> "})"}}},
    {"string_like_number",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>t</arg_key><arg_value>123</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"t": "123"})"}}},
    {"empty_string", kGlm, kAnswer, "<tool_call>f<arg_key>t</arg_key><arg_value></arg_value></tool_call>", "", "", {{"f", R"({"t": ""})"}}},
    {"types",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>n</arg_key><arg_value>-7</arg_value><arg_key>x</arg_key><arg_value> 2.50 </arg_value><arg_key>b</arg_key>"
     "<arg_value>true</arg_value><arg_key>list</arg_key><arg_value>[1, 2]</arg_value><arg_key>o</arg_key><arg_value>{\"a\": \"<b>\"}"
     "</arg_value><arg_key>z</arg_key><arg_value>null</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"n": -7, "x": 2.50, "b": true, "list": [1, 2], "o": {"a": "<b>"}, "z": null})"}}},
    {"types_written_wrong",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>n</arg_key><arg_value>many</arg_value><arg_key>x</arg_key><arg_value>1,5</arg_value><arg_key>b</arg_key>"
     "<arg_value>True</arg_value><arg_key>list</arg_key><arg_value>[1, 2</arg_value><arg_key>o</arg_key><arg_value>{'a': 1}</arg_value>"
     "<arg_key>z</arg_key><arg_value>None</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"n": "many", "x": "1,5", "b": true, "list": "[1, 2", "o": "{'a': 1}", "z": null})"}}},
    {"string_or_null",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>s</arg_key><arg_value>null</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"s": null})"}}},
    {"string_or_null_text",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>s</arg_key><arg_value>nullify</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"s": "nullify"})"}}},
    {"string_or_null_number",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>s</arg_key><arg_value>5</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"s": "5"})"}}},
    {"string_or_null_empty",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>s</arg_key><arg_value> </arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"s": " "})"}}},
    {"string_or_integer",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>u</arg_key><arg_value>5</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"u": 5})"}}},
    {"string_or_integer_text",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>u</arg_key><arg_value>5 <apples</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"u": "5 <apples"})"}}},
    {"enum_const",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>e</arg_key><arg_value>1</arg_value><arg_key>k</arg_key><arg_value>2</arg_value><arg_key>c</arg_key>"
     "<arg_value>3</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"e": "1", "k": 2, "c": "3"})"}}},
    {"references",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>r</arg_key><arg_value>1</arg_value><arg_key>rs</arg_key><arg_value>2</arg_value><arg_key>all</arg_key>"
     "<arg_value>3</arg_value><arg_key>loop</arg_key><arg_value>4</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"r": 1, "rs": "2", "all": 3, "loop": 4})"}}},
    {"untyped",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>any</arg_key><arg_value>{\"a\": [1]}</arg_value><arg_key>other</arg_key><arg_value>false</arg_value>"
     "<arg_key>more</arg_key><arg_value>[draft] x</arg_value><arg_key>m</arg_key><arg_value>{}</arg_value></tool_call>",
     "",
     "",
     {{"f", R"({"any": {"a": [1]}, "other": false, "more": "[draft] x", "m": {}})"}}},
    {"additional_properties",
     kGlm,
     kAnswer,
     "<tool_call>map<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
     "",
     "",
     {{"map", R"({"a": "1"})"}}},
    {"unknown_tool",
     kGlm,
     kAnswer,
     "<tool_call>g.h<arg_key>a \"b\"</arg_key><arg_value>1</arg_value></tool_call>",
     "",
     "",
     {{"g.h", R"({"a \"b\"": "1"})"}}},
    {"call_ends_thinking", kGlm, kThinks, "I need it. <tool_call>now</tool_call>", "I need it.", "", {{"now", "{}"}}},
    {"thinks_about_calls", kGlm, kThinks, "Write <tool_call> or <tool_call>g</tool_call>?</think>So.",
     "Write <tool_call> or <tool_call>g</tool_call>?", "So."},
    {"no_name", kGlm, kAnswer, "<tool_call></tool_call>", "", "<tool_call></tool_call>"},
    {"json_call", kGlm, kAnswer, "<tool_call>{\"name\": \"f\"}</tool_call>", "", "<tool_call>{\"name\": \"f\"}</tool_call>"},
    {"sentence", kGlm, kAnswer, "The tag <tool_call> opens, </tool_call> closes.", "", "The tag <tool_call> opens, </tool_call> closes."},
    {"opened_twice", kGlm, kAnswer, "<tool_call> <tool_call>now</tool_call>", "", "<tool_call>", {{"now", "{}"}}},
    {"long_head",
     kGlm,
     kAnswer,
     "<tool_call>" + std::string(600, 'x') + " <tool_call>now</tool_call>",
     "",
     "<tool_call>" + std::string(600, 'x'),
     {{"now", "{}"}}},
    {"stray_text", kGlm, kAnswer,
     "<tool_call>f Oh.<arg_key>n</arg_key><arg_value>1</arg_value> um, so <arg_key>b</arg_key> <arg_value>true</arg_value>\n</tool_call>",
     "",
     "<tool_call>f Oh.<arg_key>n</arg_key><arg_value>1</arg_value> um, so <arg_key>b</arg_key> <arg_value>true</arg_value>\n</tool_call>"},
    {"stray_text_inside",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value>\n um, so <arg_key>b</arg_key> <arg_value>true</arg_value>\n</tool_call>",
     "",
     "um, so",
     {{"f", R"({"n": 1, "b": true})"}}},
    {"key_twice",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value><arg_key>n</arg_key><arg_value>2</arg_value></tool_call>",
     "",
     "<arg_key>n</arg_key><arg_value>2</arg_value>",
     {{"f", R"({"n": 1})"}}},
    {"key_without_value", kGlm, kAnswer, "<tool_call>f<arg_key>n</arg_key></tool_call>So.", "", "<arg_key>n</arg_key>So.", {{"f", "{}"}}},
    {"not_closed",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value><tool_call>now</tool_call>",
     "",
     "",
     {{"f", R"({"n": 1})"}, {"now", "{}"}}},
    {"ends_in_the_head", kGlm, kAnswer, "So. <tool_call>get_wea", "", "So. <tool_call>get_wea"},
    {"ends_in_the_key", kGlm, kAnswer, "<tool_call>f<arg_key>n</arg_k", "", "<arg_key>n</arg_k", {{"f", "{"}}},
    {"ends_in_a_number",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>b</arg_key><arg_value>true</arg_value><arg_key>n</arg_key><arg_value>12",
     "",
     "<arg_key>n</arg_key><arg_value>12",
     {{"f", R"({"b": true)"}}},
    {"ends_in_a_string", kGlm, kAnswer, "<tool_call>f<arg_key>t</arg_key><arg_value>Pa\"r</arg_", "", "", {{"f", R"({"t": "Pa\"r</arg_)"}}},
    {"ends_behind_a_value", kGlm, kAnswer, "<tool_call>f<arg_key>n</arg_key><arg_value>12</arg_value>", "", "", {{"f", R"({"n": 12})"}}},
    {"ends_in_the_closing",
     kGlm,
     kAnswer,
     "<tool_call>f<arg_key>n</arg_key><arg_value>12</arg_value></tool",
     "",
     "</tool",
     {{"f", R"({"n": 12})"}}},
};

const Case kDsmlCases[] = {
    {"two_calls",
     kDsml,
     kThinks,
     "Both.</think>Let me look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
     "<｜DSML｜parameter name=\"city\" string=\"true\">Paris <\"x\"></｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"days\" string=\"false\">5</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
     "<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "Both.",
     "Let me look.",
     {{"get_weather", R"({"city": "Paris <\"x\">", "days": 5})"}, {"now", "{}"}}},
    {"what_it_says_counts",
     kDsml,
     kAnswer,
     "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"n\" string=\"true\">1</｜DSML｜parameter>"
     "<｜DSML｜parameter name=\"t\" string=\"false\">[\"a\", {\"b\": null}]</｜DSML｜parameter>"
     "<｜DSML｜parameter name=\"u\" string=\"false\">\"q\"</｜DSML｜parameter>"
     "<｜DSML｜parameter name=\"o\" string=\"false\">{oops</｜DSML｜parameter>"
     "<｜DSML｜parameter name=\"x\">2</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls> Done.",
     "",
     "Done.",
     {{"f", R"({"n": "1", "t": ["a", {"b": null}], "u": "q", "o": "{oops", "x": 2})"}}},
    {"no_section", kDsml, kAnswer, "A<｜DSML｜invoke name=\"now\"></｜DSML｜invoke>B", "", "AB", {{"now", "{}"}}},
    {"section_without_call", kDsml, kAnswer, "<｜DSML｜function_calls> none </｜DSML｜function_calls>", "",
     "<｜DSML｜function_calls> none </｜DSML｜function_calls>"},
    {"nearly_marks", kDsml, kAnswer, "<｜DSML <｜DS｜<｜", "", "<｜DSML <｜DS｜<｜"},
    {"call_not_closed",
     kDsml,
     kAnswer,
     "<｜DSML｜function_calls><｜DSML｜invoke name=\"now\"></｜DSML｜function_calls>B",
     "",
     "B",
     {{"now", "{}"}}},
    {"odd_attribute",
     kDsml,
     kAnswer,
     "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"n\" type=\"x\">1</｜DSML｜parameter></｜DSML｜invoke>",
     "",
     "<｜DSML｜parameter name=\"n\" type=\"x\">1</｜DSML｜parameter>",
     {{"f", "{}"}}},
    {"ends_in_a_string",
     kDsml,
     kAnswer,
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"t\" string=\"true\">ab",
     "",
     "",
     {{"f", R"({"t": "ab)"}}},
};

const Case kV3Cases[] = {
    {"v31",
     kV3,
     kAnswer,
     "Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Łódź <｜\", \"days\": 2}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "",
     "Sure.",
     {{"get_weather", R"({"city": "Łódź <｜", "days": 2})"}, {"now", "{}"}}},
    {"v3",
     kV3,
     kThinks,
     "Hm.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"`\"}\n```"
     "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>So.",
     "Hm.",
     "So.",
     {{"get_weather", R"({"city": "`"})"}, {"now", "{}"}}},
    {"v3_without_fence",
     kV3,
     kAnswer,
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n{\"a\": 1}<｜tool▁call▁end｜>",
     "",
     "",
     {{"now", R"({"a": 1})"}}},
    {"v31_named_function",
     kV3,
     kAnswer,
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>",
     "",
     "",
     {{"function", R"({"a": 1})"}}},
    {"no_arguments", kV3, kAnswer, "<｜tool▁call▁begin｜>now<｜tool▁sep｜> <｜tool▁call▁end｜>", "", "", {{"now", "{}"}}},
    {"broken_json",
     kV3,
     kAnswer,
     "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{\"a\": 1,, 2}<｜tool▁call▁end｜>So.",
     "",
     ", 2}So.",
     {{"now", R"({"a": 1,)"}}},
    {"no_object", kV3, kAnswer, "<｜tool▁call▁begin｜>now<｜tool▁sep｜>[1]<｜tool▁call▁end｜>", "", "[1]", {{"now", ""}}},
    {"text_behind_json", kV3, kAnswer, "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{} ``x<｜tool▁call▁end｜>", "", "``x", {{"now", "{}"}}},
    {"not_closed",
     kV3,
     kAnswer,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁calls▁end｜>So.",
     "",
     "So.",
     {{"now", "{}"}}},
    {"ends_in_json", kV3, kAnswer, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"t\": \"a", "", "", {{"f", R"({"t": "a)"}}},
    {"ends_in_the_section", kV3, kAnswer, "So. <｜tool▁calls▁begin｜> ", "", "So. <｜tool▁calls▁begin｜> "},
};

const Case kKimiCases[] = {
    {"two_calls",
     kKimi,
     kThinks,
     "Hm.</think>Look. <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
     "{\"city\": \"<|x|> 北京\", \"days\": 1.0}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "Hm.",
     "Look.",
     {{"get_weather", "{\"city\": \"<|x|> 北京\", \"days\": 1.0}", "functions.get_weather:0"}, {"now", "{}", "functions.now:1"}}},
    {"call_ends_thinking",
     kKimi,
     kThinks,
     "Hm.<|tool_calls_section_begin|><|tool_call_begin|>functions.now:7<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>So.",
     "Hm.",
     "So.",
     {{"now", "{}", "functions.now:7"}}},
    {"ids_of_others",
     kKimi,
     kAnswer,
     "<|tool_call_begin|> call_ab12 <|tool_call_argument_begin|> {} <|tool_call_end|><|tool_call_begin|>now:3<|tool_call_argument_begin|>"
     "<|tool_call_end|>",
     "",
     "",
     {{"call_ab12", "{}", "call_ab12"}, {"now", "{}", "now:3"}}},
    {"dots_and_colons",
     kKimi,
     kAnswer,
     "<|tool_call_begin|>functions.a.b:c:2<|tool_call_argument_begin|>{}<|tool_call_end|>",
     "",
     "",
     {{"a.b:c", "{}", "functions.a.b:c:2"}}},
    {"no_id", kKimi, kAnswer, "<|tool_call_begin|><|tool_call_argument_begin|>{}<|tool_call_end|>", "",
     "<|tool_call_begin|><|tool_call_argument_begin|>{}<|tool_call_end|>"},
    {"ends_in_the_id", kKimi, kAnswer, "<|tool_calls_section_begin|><|tool_call_begin|>functions.no", "",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.no"},
};

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

class Output : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Reasoning, Output, testing::ValuesIn(kReasoningCases), name_of);
INSTANTIATE_TEST_SUITE_P(Glm, Output, testing::ValuesIn(kGlmCases), name_of);
INSTANTIATE_TEST_SUITE_P(DeepseekV32, Output, testing::ValuesIn(kDsmlCases), name_of);
INSTANTIATE_TEST_SUITE_P(DeepseekV3, Output, testing::ValuesIn(kV3Cases), name_of);
INSTANTIATE_TEST_SUITE_P(Kimi, Output, testing::ValuesIn(kKimiCases), name_of);

TEST_P(Output, IsReadAsWritten) { expect_whole(GetParam(), {}); }

// One cut at every byte, two at every pair in short texts (and with every stride in long ones), and every byte on its own.
TEST_P(Output, IsTheSameHoweverItIsCut) {
  const Case& c = GetParam();
  std::vector<std::size_t> every;
  for (std::size_t i = 1; i < c.text.size(); ++i) every.push_back(i);
  expect_whole(c, every);
  const std::size_t stride = c.text.size() <= 100 ? 1 : 29;
  for (std::size_t i = 0; i <= c.text.size() && !HasFailure(); ++i) {
    expect_whole(c, {i});
    for (std::size_t j = i; j <= c.text.size() && !HasFailure(); j += stride) expect_whole(c, {i, j});
  }
}

// Arguments that are all there are valid JSON, read here by another parser than the one that checked them.
TEST_P(Output, ClosedArgumentsAreJson) {
  for (const ToolCallDelta& call : parse(options_of(GetParam()), GetParam().text, {}).calls) {
    if (!call.arguments.ends_with('}')) continue;
    boost::json::error_code error;
    EXPECT_TRUE(boost::json::parse(call.arguments, error).is_object()) << call.arguments;
  }
}

TEST(OutputParser, LooksForCallsOnlyWhereThereAreTools) {
  const std::string text = "<tool_call>now</tool_call> ";
  for (const char* tools : {"", " ", "null", "[]"}) {
    const Whole whole = parse({.format = kGlm, .tools_json = tools}, text, {});
    EXPECT_EQ(whole.content, text) << tools;
    EXPECT_TRUE(whole.calls.empty()) << tools;
  }
}

TEST(OutputParser, ReadsFlatAndAnthropicTools) {
  const std::string text =
      "<tool_call>a<arg_key>k</arg_key><arg_value>1</arg_value></tool_call>"
      "<tool_call>b<arg_key>k</arg_key><arg_value>1</arg_value></tool_call>";
  const char* tools = R"([{"type": "function", "name": "a", "parameters": {"properties": {"k": {"type": "integer"}}}},
                          {"name": "b", "input_schema": {"properties": {"k": {"type": "string"}}}}])";
  const Whole whole = parse({.format = kGlm, .tools_json = tools}, text, {});
  ASSERT_EQ(whole.calls.size(), 2u);
  EXPECT_EQ(whole.calls[0].arguments, R"({"k": 1})");
  EXPECT_EQ(whole.calls[1].arguments, R"({"k": "1"})");
}

TEST(OutputParser, MakesUpDifferentIds) {
  const std::string text = "<tool_call>now</tool_call><tool_call>now</tool_call>";
  const OutputParserOptions options{.format = kGlm, .tools_json = kTools};
  const Whole one = parse(options, text, {});
  const Whole other = parse(options, text, {});
  ASSERT_EQ(one.calls.size(), 2u);
  EXPECT_NE(one.calls[0].id, one.calls[1].id);
  EXPECT_NE(one.calls[0].id, other.calls[0].id);
}

// A reader sees the text as early as it is certain.
TEST(OutputParser, HoldsBackOnlyWhatMayBeAMark) {
  OutputParser parser = OutputParser::open({.format = kGlm, .tools_json = kTools, .start = kThinks});
  EXPECT_EQ(parser.push("thinking").reasoning, "thinking");
  EXPECT_EQ(parser.push(" <").reasoning, "");
  EXPECT_EQ(parser.push("b").reasoning, " <b");
  EXPECT_EQ(parser.push("</think>Hello").content, "Hello");
  EXPECT_EQ(parser.push(" <tool").content, "");
  EXPECT_EQ(parser.push("s>").content, " <tools>");
  EXPECT_TRUE(parser.push("<tool_call>f").empty());
  OutputDelta delta = parser.push("<arg_key>");
  ASSERT_EQ(delta.tool_calls.size(), 1u);
  EXPECT_EQ(delta.tool_calls[0].name, "f");
  EXPECT_EQ(delta.tool_calls[0].arguments, "{");
  delta = parser.push("t</arg_key><arg_value>Par");
  ASSERT_EQ(delta.tool_calls.size(), 1u);
  EXPECT_EQ(delta.tool_calls[0].arguments, "\"t\": \"Par");
  delta = parser.push("is</arg_value><arg_key>s</arg_key><arg_value>now");
  ASSERT_EQ(delta.tool_calls.size(), 1u);
  EXPECT_EQ(delta.tool_calls[0].arguments, "is\", \"s\": \"now");
}

TEST(OutputParser, StreamsJsonArguments) {
  OutputParser parser = OutputParser::open({.format = kKimi, .tools_json = kTools});
  (void)parser.push("<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>");
  const OutputDelta delta = parser.push("{\"t\": \"Par");
  ASSERT_EQ(delta.tool_calls.size(), 1u);
  EXPECT_EQ(delta.tool_calls[0].arguments, "{\"t\": \"Par");
}

TEST(OutputParser, GivesWholeCharacters) {
  OutputParser parser = OutputParser::open({.format = kGlm});
  EXPECT_EQ(parser.push("a\xF0\x9F").content, "a");
  EXPECT_EQ(parser.push("\x98").content, "");
  EXPECT_EQ(parser.push("\x80z").content, "😀z");
}

TEST(OutputParser, StartsWhereThePromptOpenedReasoning) {
  EXPECT_EQ(output_start_after("<|assistant|><think>"), kThinks);
  EXPECT_EQ(output_start_after("<|assistant|>\n<think>\n"), kThinks);
  EXPECT_EQ(output_start_after("<|assistant|></think>"), kAnswer);
  EXPECT_EQ(output_start_after(""), kAnswer);
}

TEST(OutputParser, FormatFollowsTheModel) {
  for (const char* type : {"glm_moe_dsa", "glm4_moe", "glm4_moe_lite"}) EXPECT_EQ(output_format_for(type, ""), kGlm);
  EXPECT_EQ(output_format_for("deepseek_v32", ""), kDsml);
  EXPECT_EQ(output_format_for("deepseek_v3", "{{ messages }}"), kV3);
  for (const char* type : {"kimi_k2", "kimi_k25"}) EXPECT_EQ(output_format_for(type, ""), kKimi);
  EXPECT_EQ(output_format_for("llama", ""), kPlain);
  // What the template writes counts more than the name.
  EXPECT_EQ(output_format_for("deepseek_v32", "{{'<｜tool▁calls▁begin｜>'}}"), kV3);
  EXPECT_EQ(output_format_for("deepseek_v3", "<|tool_calls_section_begin|>"), kKimi);
}

}  // namespace
}  // namespace reckoner
