#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstring>

#include "text/text_test_support.h"
#include "text/tokenizer.h"

namespace reckoner {
namespace {

// What transformers rendered and encoded (tools/record_golden.py).
struct GoldenCase {
  std::string name;
  ChatPrompt prompt;
  std::string text;
  std::vector<TokenId> ids;
};

std::vector<GoldenCase> read_golden() {
  const std::string file = read_file("tests/data/pocket-golden.safetensors");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  const boost::json::object header = boost::json::parse(std::string_view(file).substr(8, header_bytes)).as_object();
  std::vector<GoldenCase> cases;
  for (const auto& [name, value] : header.at("__metadata__").as_object()) {
    const boost::json::value* tensor = header.if_contains(std::string(name) + ".input_ids");
    if (tensor == nullptr) continue;
    const boost::json::object recorded = boost::json::parse(value.as_string()).as_object();
    const boost::json::array& offsets = tensor->at("data_offsets").as_array();
    const std::size_t begin = 8 + header_bytes + offsets[0].to_number<std::size_t>();
    const std::size_t size_bytes = offsets[1].to_number<std::size_t>() - offsets[0].to_number<std::size_t>();
    GoldenCase golden{.name = name,
                      .prompt = {.messages_json = serialize(recorded.at("messages")), .tools_json = serialize(recorded.at("tools"))},
                      .text = std::string(recorded.at("text").as_string()),
                      .ids = std::vector<TokenId>(size_bytes / sizeof(TokenId))};
    std::memcpy(golden.ids.data(), file.data() + begin, size_bytes);
    cases.push_back(std::move(golden));
  }
  return cases;
}

TEST(ChatTemplate, RendersAndEncodesAsTransformers) {
  const Tokenizer tokenizer = pocket();
  const std::vector<GoldenCase> cases = read_golden();
  ASSERT_GE(cases.size(), 4u);
  for (const GoldenCase& golden : cases) {
    const std::string text = must(tokenizer.apply_chat_template(golden.prompt));
    EXPECT_EQ(text, golden.text) << golden.name;
    EXPECT_EQ(must(tokenizer.encode(text)), golden.ids) << golden.name;
  }
}

TEST(ChatTemplate, TakesKwargsAndGenerationPrompt) {
  const Tokenizer tokenizer = pocket();
  ChatPrompt prompt{.messages_json = R"([{"role":"user","content":"hi"}])"};
  EXPECT_EQ(must(tokenizer.apply_chat_template(prompt)), "[gMASK]<sop><|user|>hi<|assistant|><think>");
  prompt.kwargs_json = R"({"enable_thinking": false})";
  EXPECT_EQ(must(tokenizer.apply_chat_template(prompt)), "[gMASK]<sop><|user|>hi<|assistant|></think>");
  prompt.generation_prompt = GenerationPrompt::none;
  EXPECT_EQ(must(tokenizer.apply_chat_template(prompt)), "[gMASK]<sop><|user|>hi");
}

TEST(ChatTemplate, NullContentAndToolResultsRender) {
  const ChatPrompt prompt{.messages_json = R"([{"role":"user","content":"add"},
        {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"b\": 2, \"a\": [1, \"é\"], \"s\": \"x\"}"}}]},
        {"role":"tool","tool_call_id":"c1","content":"3"},{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"4"}]}])"};
  EXPECT_EQ(must(pocket().apply_chat_template(prompt)),
            "[gMASK]<sop><|user|>add<|assistant|></think><tool_call>add<arg_key>b</arg_key><arg_value>2</arg_value>"
            "<arg_key>a</arg_key><arg_value>[1, \"é\"]</arg_value><arg_key>s</arg_key><arg_value>x</arg_value></tool_call>"
            "<|observation|><tool_response>3</tool_response><tool_response>4</tool_response><|assistant|><think>");
}

std::string call_with_arguments(const std::string& arguments) {
  return R"([{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":)" + arguments + "}}]}]";
}

TEST(ChatTemplate, ToolArgumentsAsTextAndAsObjectRenderTheSame) {
  const Tokenizer tokenizer = pocket();
  const std::string object = R"({"zeta": 1.5, "alpha": {"k": null, "j": true}, "m": "漢 \"quoted\""})";
  const ChatPrompt as_object{.messages_json = call_with_arguments(object)};
  const ChatPrompt as_text{.messages_json = call_with_arguments(boost::json::serialize(boost::json::value(object)))};
  const std::string text = must(tokenizer.apply_chat_template(as_object));
  EXPECT_EQ(must(tokenizer.apply_chat_template(as_text)), text);
  EXPECT_NE(text.find("<arg_key>zeta</arg_key><arg_value>1.5</arg_value><arg_key>alpha</arg_key>"
                      "<arg_value>{\"k\": null, \"j\": true}</arg_value><arg_key>m</arg_key><arg_value>漢 \"quoted\"</arg_value>"),
            std::string::npos)
      << text;
  EXPECT_NE(must(tokenizer.apply_chat_template({.messages_json = call_with_arguments("\"\"")})).find("<tool_call>f</tool_call>"),
            std::string::npos);
}

// DeepSeek-V3's template joins them to other texts; the error of one that takes neither is that for the object.
TEST(ChatTemplate, ATemplateThatNeedsArgumentsAsTextGetsThem) {
  const Tokenizer tokenizer = must(pocket_with_template("{{ 'f(' + messages[0].tool_calls[0].function.arguments + ')' }}"));
  const ChatPrompt prompt{.messages_json = call_with_arguments(R"("{\"a\":1}")")};
  EXPECT_EQ(must(tokenizer.apply_chat_template(prompt)), "f({\"a\":1})");
  EXPECT_FALSE(tokenizer.apply_chat_template({.messages_json = call_with_arguments(R"({"a":1})")}).ok());
  const Result<std::string> neither =
      must(pocket_with_template("{{ messages[0].tool_calls[0].function.arguments.nonesuch() }}")).apply_chat_template(prompt);
  ASSERT_FALSE(neither.ok());
  EXPECT_NE(neither.error().what.find("map has no method named nonesuch"), std::string::npos) << neither.error().what;
}

TEST(ChatTemplate, ArgumentsThatAreNoObjectStayAsTheyAre) {
  const Tokenizer tokenizer = must(pocket_with_template("{{ messages[0].tool_calls[0].function.arguments | tojson }}"));
  for (const std::string arguments : {R"("[1, 2]")", R"("not json")", R"("3")", R"([1, 2])", "null"}) {
    EXPECT_EQ(must(tokenizer.apply_chat_template({.messages_json = call_with_arguments(arguments)})), arguments);
  }
}

TEST(ChatTemplate, ToolsKeepTheRequestsKeyOrder) {
  const Tokenizer tokenizer = must(pocket_with_template("{% for t in tools %}{{ t | tojson(ensure_ascii=False) }}\n{% endfor %}"));
  const std::string tool =
      R"({"type": "function", "function": {"name": "wetter", "description": "Größe in °C, 天気 🌦", "strict": true, "parameters": )"
      R"({"type": "object", "required": ["z", "a"], "properties": {"zulu": {"type": "string"}, "alpha": {"enum": [1, 2.5, null]}, "mike": {}}}}})";
  EXPECT_EQ(must(tokenizer.apply_chat_template({.messages_json = "[]", .tools_json = "[" + tool + "]"})), tool + "\n");
}

TEST(ChatTemplate, NoToolsInAnySpellingAreNone) {
  const Tokenizer tokenizer = must(pocket_with_template("{{ 'none' if tools is none else 'some' }}"));
  for (const char* tools : {"", " ", "null", "[]"}) {
    EXPECT_EQ(must(tokenizer.apply_chat_template({.messages_json = "[]", .tools_json = tools})), "none");
  }
}

// The texts of a template error, whose `what` must hold all of `expected`.
void expect_template_error(const Result<std::string>& rendered, const std::vector<std::string>& expected) {
  ASSERT_FALSE(rendered.ok());
  for (const std::string& text : expected) EXPECT_NE(rendered.error().what.find(text), std::string::npos) << rendered.error().what;
  EXPECT_FALSE(rendered.error().remedy.empty());
}

TEST(ChatTemplate, ASyntaxErrorCarriesFileAndLine) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", read_file("models/pocket/tokenizer.json"));
  // The written line break in line 1 must not count as a line.
  folder.write("chat_template.jinja", "{{ 'a\\nb\\nc' }}\n{% for m in messages %}\n{{ m.content | }}\n{% endfor %}\n");
  const Result<Tokenizer> loaded = Tokenizer::load(folder.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().what.find("chat_template.jinja:3"), std::string::npos) << loaded.error().what;
  EXPECT_FALSE(loaded.error().remedy.empty());

  std::filesystem::remove(folder.path() / "chat_template.jinja");
  folder.write("tokenizer_config.json", R"({"chat_template": "line one\n{% if %}"})");
  const Result<Tokenizer> from_config = Tokenizer::load(folder.path());
  ASSERT_FALSE(from_config.ok());
  EXPECT_NE(from_config.error().what.find("tokenizer_config.json:2"), std::string::npos) << from_config.error().what;
}

TEST(ChatTemplate, AnErrorWhileRenderingCarriesTheLine) {
  const Tokenizer tokenizer = must(pocket_with_template("{{ 'a\\nb' }}\n\n{{ messages[0].content.absent.deeper }}"));
  expect_template_error(tokenizer.apply_chat_template({.messages_json = R"([{"content":"x"}])"}), {"chat template:3"});
}

TEST(ChatTemplate, WhatATemplateRaisesIsTold) {
  const Tokenizer tokenizer = must(pocket_with_template(
      "{% if messages[0].role != 'user' %}\n{{ raise_exception('the first message must be a user\\'s') }}{% endif %}ok"));
  EXPECT_EQ(must(tokenizer.apply_chat_template({.messages_json = R"([{"role":"user"}])"})), "ok");
  expect_template_error(tokenizer.apply_chat_template({.messages_json = R"([{"role":"system"}])"}),
                        {"the first message must be a user's", "chat template:2"});
}

TEST(ChatTemplate, WithoutATemplateThereIsAnError) {
  const Tokenizer tokenizer = must(pocket_with_template(""));
  expect_template_error(tokenizer.apply_chat_template({.messages_json = "[]"}), {"no chat template", "chat_template.jinja"});
}

TEST(ChatTemplate, JsonThatDoesNotParseIsNamed) {
  const Tokenizer tokenizer = pocket();
  const std::string good = R"([{"role":"user","content":"x"}])";
  expect_template_error(tokenizer.apply_chat_template({.messages_json = ""}), {"messages"});
  expect_template_error(tokenizer.apply_chat_template({.messages_json = "{}"}), {"messages"});
  expect_template_error(tokenizer.apply_chat_template({.messages_json = good, .tools_json = "[{]"}), {"tools"});
  expect_template_error(tokenizer.apply_chat_template({.messages_json = good, .kwargs_json = "[1]"}), {"chat_template_kwargs"});
  expect_template_error(tokenizer.apply_chat_template({.messages_json = "[\"\xFF\"]"}), {"messages", "UTF-8"});
}

TEST(ChatTemplate, EndlessRecursionIsAnError) {
  const Tokenizer tokenizer = must(pocket_with_template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"));
  EXPECT_FALSE(tokenizer.apply_chat_template({.messages_json = "[]"}).ok());
}

TEST(ChatTemplate, TheJinjaFileTakesPrecedenceAndIsReadAsWritten) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", read_file("models/pocket/tokenizer.json"));
  folder.write("tokenizer_config.json", R"({"chat_template": "config", "eos_token": "<eop>", "bos_token": {"content": "<sop>"}})");
  EXPECT_EQ(must(must(Tokenizer::load(folder.path())).apply_chat_template({.messages_json = "[]"})), "config");
  folder.write("chat_template.jinja", "  {{ bos_token }}\\n{{ 'a\\\\nb' }}{{ eos_token }}\r\n\n");
  EXPECT_EQ(must(must(Tokenizer::load(folder.path())).apply_chat_template({.messages_json = "[]"})), "  <sop>\\na\\nb<eop>\n");
}

TEST(ChatTemplate, TheDefaultOfNamedTemplatesIsTaken) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", read_file("models/pocket/tokenizer.json"));
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]})");
  EXPECT_EQ(must(must(Tokenizer::load(folder.path())).apply_chat_template({.messages_json = "[]"})), "yes");
}

}  // namespace
}  // namespace reckoner
