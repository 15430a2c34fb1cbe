// Anthropic's messages and OpenAI's responses, whole and as streams.
#include <fmt/format.h>

#include <map>

#include "test_server.h"

namespace reckoner {
namespace {

constexpr const char* kSum = R"("content":"Please add 6997 and 6578.")";

class OtherApis : public ServerTest {};

struct Event {
  std::string name;
  std::string data;
};
std::vector<Event> events_of(const std::string& stream) {
  std::vector<Event> events;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    const std::string event = stream.substr(at, end - at);
    const std::size_t line = event.find('\n');
    events.push_back({event.substr(7, line - 7), event.substr(line + 7)});
    if (end == std::string::npos) break;
    at = end + 2;
  }
  return events;
}

std::string message(std::string_view more) {
  return fmt::format(R"({{"max_tokens":500,"temperature":0,"thinking":{{"type":"disabled"}},{}}})", more);
}

const std::string kMessageTools =
    R"("tools":[{"name":"add","description":"Adds two integers.","input_schema":{"type":"object","properties":{"a":{"type":"integer"},)"
    R"("b":{"type":"integer"}},"required":["a","b"]}},{"name":"now","description":"Current time.","input_schema":{"type":"object",)"
    R"("properties":{}}}])";

TEST_F(OtherApis, MessagesAnswer) {
  start();
  const ClientResponse response = post("/v1/messages", message(R"("messages":[{"role":"user","content":"Define lantern."}])"));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(text_at(response.body, "/type"), "message");
  EXPECT_EQ(text_at(response.body, "/content/0/type"), "text");
  EXPECT_EQ(text_at(response.body, "/content/0/text"), kLantern);
  EXPECT_EQ(text_at(response.body, "/stop_reason"), "end_turn");
  EXPECT_GT(at(response.body, "/usage/output_tokens").as_int64(), 1);
  const ClientResponse stopped = post(
      "/v1/messages",
      message(R"("stop_sequences":[" protective"],"messages":[{"role":"user","content":[{"type":"text","text":"Define lantern."}]}])"));
  EXPECT_EQ(text_at(stopped.body, "/content/0/text"), "light in a transparent");
  EXPECT_EQ(text_at(stopped.body, "/stop_reason"), "stop_sequence");
  EXPECT_EQ(text_at(stopped.body, "/stop_sequence"), " protective");
}

TEST_F(OtherApis, MessagesAreCounted) {
  start();
  const std::string chat = R"("messages":[{"role":"user","content":"Define lantern."}],)" + kMessageTools;
  const ClientResponse counted = post("/v1/messages/count_tokens", R"({"model":"pocket",)" + chat + "}");
  ASSERT_EQ(counted.status, 200) << counted.body;
  const ClientResponse answered = post("/v1/messages", R"({"max_tokens":1,)" + chat + "}");
  EXPECT_EQ(at(counted.body, "/input_tokens"), at(answered.body, "/usage/input_tokens")) << answered.body;
  EXPECT_EQ(text_at(post("/v1/messages/count_tokens", R"({"model":"pocket"})").body, "/type"), "error");
}

TEST_F(OtherApis, MessagesStreamInBlocks) {
  start();
  const ClientResponse response =
      post("/v1/messages", message(R"("stream":true,"messages":[{"role":"user","content":"Define lantern."}])"));
  const std::vector<Event> events = events_of(response.body);
  ASSERT_GE(events.size(), 6u) << response.body;
  EXPECT_EQ(events[0].name, "message_start");
  EXPECT_EQ(text_at(events[0].data, "/message/role"), "assistant");
  EXPECT_EQ(events[1].name, "content_block_start");
  EXPECT_EQ(text_at(events[1].data, "/content_block/type"), "text");
  std::string text;
  for (const Event& event : events) {
    EXPECT_EQ(text_at(event.data, "/type"), event.name);
    if (event.name == "content_block_delta") text += text_at(event.data, "/delta/text");
  }
  EXPECT_EQ(text, kLantern);
  EXPECT_EQ(events[events.size() - 3].name, "content_block_stop");
  EXPECT_EQ(text_at(events[events.size() - 2].data, "/delta/stop_reason"), "end_turn");
  EXPECT_EQ(events.back().name, "message_stop");
}

TEST_F(OtherApis, MessagesUseTools) {
  start();
  const std::string ask = fmt::format(R"("messages":[{{"role":"user",{}}}],{})", kSum, kMessageTools);
  const ClientResponse response = post("/v1/messages", message(ask));
  EXPECT_EQ(text_at(response.body, "/stop_reason"), "tool_use") << response.body;
  const boost::json::value content = at(response.body, "/content");
  ASSERT_TRUE(content.is_array());
  const boost::json::value& use = content.as_array().back();
  EXPECT_EQ(use.at("name").as_string(), "add");
  EXPECT_EQ(use.at("input"), boost::json::parse(R"({"a":6997,"b":6578})"));
  std::string arguments;
  for (const Event& event : events_of(post("/v1/messages", message("\"stream\":true," + ask)).body)) {
    if (text_at(event.data, "/delta/type") == "input_json_delta") arguments += text_at(event.data, "/delta/partial_json");
  }
  EXPECT_EQ(boost::json::parse(arguments), use.at("input"));
  const std::string back =
      fmt::format(R"("messages":[{{"role":"user",{}}},{{"role":"assistant","content":[{}]}},{{"role":"user","content":[)"
                  R"({{"type":"tool_result","tool_use_id":"{}","content":"13575"}}]}}],{})",
                  kSum, boost::json::serialize(use), use.at("id").as_string().c_str(), kMessageTools);
  const ClientResponse answer = post("/v1/messages", message(back));
  EXPECT_NE(answer.body.find("13575"), std::string::npos) << answer.body;
}

TEST_F(OtherApis, MessagesRefuseInTheirOwnShape) {
  start();
  const std::map<std::string, std::string> cases = {
      {R"({"messages":[{"role":"user","content":"x"}]})", "max_tokens"},
      {R"({"max_tokens":5,"messages":[]})", "messages"},
      {R"({"max_tokens":5,"messages":[{"role":"system","content":"x"}]})", "'assistant'"},
      {R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]})", "image"},
      {R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"thinking":{"type":"maybe"}})", "adaptive"},
      {R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"frequency_penalty":1})", "frequency_penalty"}};
  for (const auto& [body, part] : cases) {
    const ClientResponse response = post("/v1/messages", body);
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(text_at(response.body, "/type"), "error");
    EXPECT_EQ(text_at(response.body, "/error/type"), "invalid_request_error");
    EXPECT_NE(text_at(response.body, "/error/message").find(part), std::string::npos) << response.body;
  }
  EXPECT_EQ(text_at(post("/v1/messages", message(R"("model":"other","messages":[{"role":"user","content":"x"}])")).body, "/error/type"),
            "not_found_error");
}

std::string items(std::string_view more) { return fmt::format(R"({{"temperature":0,"reasoning":{{"effort":"none"}},{}}})", more); }

const std::string kFlatTools =
    R"("tools":[{"type":"function","name":"add","description":"Adds two integers.","parameters":{"type":"object","properties":)"
    R"({"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}},{"type":"function","name":"now",)"
    R"("description":"Current time.","parameters":{"type":"object","properties":{}}}])";

TEST_F(OtherApis, ResponsesAnswerTextAndItems) {
  start();
  for (const char* input : {R"("Define lantern.")", R"([{"role":"user","content":"Define lantern."}])",
                            R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"Define lantern."}]}])"}) {
    const ClientResponse response = post("/v1/responses", items(fmt::format(R"("input":{})", input)));
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(text_at(response.body, "/object"), "response");
    EXPECT_EQ(text_at(response.body, "/status"), "completed");
    EXPECT_EQ(text_at(response.body, "/output/0/type"), "message");
    EXPECT_EQ(text_at(response.body, "/output/0/content/0/text"), kLantern);
  }
  const ClientResponse cut = post("/v1/responses", items(R"("input":"Define lantern.","max_output_tokens":2)"));
  EXPECT_EQ(text_at(cut.body, "/status"), "incomplete");
  EXPECT_EQ(text_at(cut.body, "/incomplete_details/reason"), "max_output_tokens");
}

TEST_F(OtherApis, ResponsesStreamTheirItems) {
  start();
  const ClientResponse response = post("/v1/responses", items(R"("stream":true,"input":"Define lantern.")"));
  const std::vector<Event> events = events_of(response.body);
  ASSERT_GE(events.size(), 8u) << response.body;
  std::string text;
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(text_at(events[i].data, "/type"), events[i].name);
    EXPECT_EQ(at(events[i].data, "/sequence_number"), boost::json::value(i));
    if (events[i].name == "response.output_text.delta") text += text_at(events[i].data, "/delta");
    EXPECT_TRUE(events[i].name != "response.output_text.done" || text_at(events[i].data, "/text") == kLantern);
  }
  EXPECT_EQ(text, kLantern);
  EXPECT_EQ(events[0].name, "response.created");
  EXPECT_EQ(events[2].name, "response.output_item.added");
  EXPECT_EQ(events[3].name, "response.content_part.added");
  EXPECT_EQ(events.back().name, "response.completed");
  EXPECT_EQ(text_at(events.back().data, "/response/output/0/content/0/text"), kLantern);
}

TEST_F(OtherApis, ResponsesCallFunctions) {
  start();
  const ClientResponse response = post("/v1/responses", items(fmt::format(R"("input":[{{"role":"user",{}}}],{})", kSum, kFlatTools)));
  const boost::json::value output = at(response.body, "/output");
  ASSERT_TRUE(output.is_array()) << response.body;
  const boost::json::value& call = output.as_array().back();
  EXPECT_EQ(call.at("type").as_string(), "function_call");
  EXPECT_EQ(boost::json::parse(call.at("arguments").as_string()), boost::json::parse(R"({"a":6997,"b":6578})"));
  const std::string back =
      fmt::format(R"("input":[{{"role":"user",{}}},{},{{"type":"function_call_output","call_id":"{}","output":"13575"}}],{})", kSum,
                  boost::json::serialize(call), call.at("call_id").as_string().c_str(), kFlatTools);
  const ClientResponse answer = post("/v1/responses", items(back));
  EXPECT_NE(answer.body.find("13575"), std::string::npos) << answer.body;
}

}  // namespace
}  // namespace reckoner
