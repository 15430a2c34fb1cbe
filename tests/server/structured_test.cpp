// Answers that must keep to a form, and calls that must be made.
#include <fmt/format.h>

#include <regex>

#include "test_server.h"

namespace reckoner {
namespace {

constexpr const char* kSchema =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":20},"count":{"type":"integer","minimum":0,"maximum":99}},)"
    R"("required":["name","count"],"additionalProperties":false})";
constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string",)"
    R"("maxLength":10},"unit":{"type":"string","enum":["C","F"]}},"required":["unit"]}}},)"
    R"({"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{}}}}])";

// Unless it thinks, the answer is drawn at temperature 1 from a model that has not learnt the form: only the grammar can bring it about.
std::string chat(std::string_view more, bool thinks = false, int seed = 1) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"Define lantern."}}],"temperature":{},"max_tokens":400,"seed":{},)"
                     R"("chat_template_kwargs":{{"enable_thinking":{}}},{}}})",
                     thinks ? 0 : 1, seed, thinks, more);
}
std::string with_schema(std::string_view more = "") {
  return fmt::format(R"("response_format":{{"type":"json_schema","json_schema":{{"name":"x","schema":{}}}}}{})", kSchema, more);
}

void expect_record(const std::string& content) {
  const boost::json::value record = at(content, "");
  ASSERT_TRUE(record.is_object()) << content;
  EXPECT_EQ(record.as_object().size(), 2u) << content;
  EXPECT_TRUE(at(content, "/name").is_string()) << content;
  EXPECT_LE(at(content, "/count").to_number<int>(), 99) << content;
}

class Structured : public ServerTest {
 protected:
  std::string content(const std::string& body) {
    const ClientResponse response = post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(text_at(response.body, "/choices/0/finish_reason"), "stop") << response.body;
    return text_at(response.body, "/choices/0/message/content");
  }
  std::string refusal(const std::string& body) {
    const ClientResponse response = post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, 400) << response.body;
    return text_at(response.body, "/error/param") + ": " + text_at(response.body, "/error/message");
  }
};

TEST_F(Structured, AnswersAreJsonOfTheSchema) {
  start();
  for (int seed = 0; seed < 5; ++seed) expect_record(content(chat(with_schema(), false, seed)));
}

TEST_F(Structured, EveryChoiceKeepsToTheSchema) {
  start();
  const ClientResponse response = post("/v1/chat/completions", chat(with_schema(R"(,"n":3)")));
  for (int i = 0; i < 3; ++i) expect_record(text_at(response.body, fmt::format("/choices/{}/message/content", i)));
}

TEST_F(Structured, AnyObjectAnExpressionAChoiceAndAGrammar) {
  start();
  const ClientResponse any = post("/v1/chat/completions", chat(R"("response_format":{"type":"json_object"})"));
  EXPECT_TRUE(text_at(any.body, "/choices/0/message/content").starts_with("{")) << any.body;
  const std::string code = content(chat(R"("structured_outputs":{"regex":"[a-c]{3}-[0-9]{2}"})"));
  EXPECT_TRUE(std::regex_match(code, std::regex("[a-c]{3}-[0-9]{2}"))) << code;
  const std::string choice = content(chat(R"("structured_outputs":{"choice":["red [dark]","green"]})"));
  EXPECT_TRUE(choice == "red [dark]" || choice == "green") << choice;
  const std::string sum = content(chat(R"("structured_outputs":{"grammar":"start: \"1\" (\"+\" \"1\"){2}"})"));
  EXPECT_EQ(sum, "1+1+1");
  const ClientResponse completion = post("/v1/completions", R"({"prompt":"a","structured_outputs":{"regex":"x{4}"},"max_tokens":20})");
  EXPECT_EQ(text_at(completion.body, "/choices/0/text"), "xxxx");
}

// What the model thinks is free; the answer is not.
TEST_F(Structured, ThinkingComesFirst) {
  start();
  const ClientResponse response = post("/v1/chat/completions", chat(with_schema(), true));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_FALSE(text_at(response.body, "/choices/0/message/reasoning_content").empty()) << response.body;
  expect_record(text_at(response.body, "/choices/0/message/content"));
  const std::int64_t reasoning = at(response.body, "/usage/completion_tokens_details/reasoning_tokens").as_int64();
  const std::int64_t all = at(response.body, "/usage/completion_tokens").as_int64();
  EXPECT_GT(reasoning, 1);
  EXPECT_LT(reasoning, all);
}

TEST_F(Structured, ARequiredCallIsMade) {
  start();
  for (int seed = 0; seed < 5; ++seed) {
    const ClientResponse response =
        post("/v1/chat/completions",
             chat(fmt::format(R"("tools":{},"tool_choice":"required","parallel_tool_calls":false)", kTools), false, seed));
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(text_at(response.body, "/choices/0/finish_reason"), "tool_calls") << response.body;
    EXPECT_EQ(at(response.body, "/choices/0/message/tool_calls").as_array().size(), 1u) << response.body;
    const std::string name = text_at(response.body, "/choices/0/message/tool_calls/0/function/name");
    EXPECT_TRUE(name == "weather" || name == "now") << name;
  }
}

TEST_F(Structured, ANamedCallIsMade) {
  start();
  for (const bool thinks : {false, true}) {
    const std::string body =
        chat(fmt::format(R"("tools":{},"tool_choice":{{"type":"function","function":{{"name":"weather"}}}})", kTools), thinks);
    const ClientResponse response = post("/v1/chat/completions", body);
    ASSERT_EQ(response.status, 200) << response.body;
    ASSERT_TRUE(at(response.body, "/choices/0/message/tool_calls").is_array()) << response.body;
    EXPECT_EQ(at(response.body, "/choices/0/message/tool_calls").as_array().size(), 1u) << response.body;
    EXPECT_EQ(text_at(response.body, "/choices/0/message/tool_calls/0/function/name"), "weather");
    const std::string unit = text_at(text_at(response.body, "/choices/0/message/tool_calls/0/function/arguments"), "/unit");
    EXPECT_TRUE(unit == "C" || unit == "F") << response.body;
  }
}

TEST_F(Structured, TheOtherApisCanAskForCalls) {
  start();
  const ClientResponse messages = post(
      "/v1/messages", R"({"model":"pocket","max_tokens":200,"messages":[{"role":"user","content":"Hi"}],"tools":[{"name":"now",)"
                      R"("input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"any"},"thinking":{"type":"disabled"}})");
  ASSERT_EQ(messages.status, 200) << messages.body;
  EXPECT_EQ(text_at(messages.body, "/stop_reason"), "tool_use") << messages.body;
  const ClientResponse responses =
      post("/v1/responses", fmt::format(R"({{"model":"pocket","input":"Hi","max_output_tokens":400,"reasoning":{{"effort":"none"}},)"
                                        R"("text":{{"format":{{"type":"json_schema","name":"x","schema":{}}}}}}})",
                                        kSchema));
  ASSERT_EQ(responses.status, 200) << responses.body;
  expect_record(text_at(responses.body, "/output/0/content/0/text"));
}

TEST_F(Structured, SaysWhatIsWrongWithTheForm) {
  start();
  EXPECT_NE(refusal(chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"nonsense"}}})"))
                .find("response_format: "),
            std::string::npos);
  EXPECT_NE(refusal(chat(R"("structured_outputs":{"regex":"(("})")).find("structured_outputs: "), std::string::npos);
  EXPECT_NE(refusal(chat(R"("structured_outputs":{"grammar":"nothing"})")).find("structured_outputs: "), std::string::npos);
  EXPECT_NE(refusal(chat(R"("structured_outputs":{"choice":[]})")).find("structured_outputs.choice"), std::string::npos);
  EXPECT_NE(refusal(chat(fmt::format(R"("tools":{},"structured_outputs":{{"regex":"a"}})", kTools))).find("cannot go with tools"),
            std::string::npos);
  const ClientResponse unknown =
      post("/v1/messages",
           R"({"model":"pocket","max_tokens":9,"messages":[{"role":"user","content":"Hi"}],"tool_choice":{"type":"tool","name":"z"}})");
  EXPECT_EQ(unknown.status, 400) << unknown.body;
  expect_alive();
}

}  // namespace
}  // namespace reckoner
