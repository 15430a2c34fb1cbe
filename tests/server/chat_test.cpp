// Chats and completions with the pocket model, whose answers are known.
#include <fmt/format.h>

#include <thread>

#include "base/json.h"
#include "test_server.h"

namespace reckoner {
namespace {

class Chat : public ServerTest {};

TEST_F(Chat, AnswersInOnePiece) {
  start();
  const ClientResponse response = post("/v1/chat/completions", lantern());
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.header("content-type"), "application/json");
  EXPECT_EQ(text_at(response.body, "/object"), "chat.completion");
  EXPECT_EQ(text_at(response.body, "/model"), "pocket");
  EXPECT_EQ(text_at(response.body, "/choices/0/message/role"), "assistant");
  EXPECT_EQ(text_at(response.body, "/choices/0/message/content"), kLantern);
  EXPECT_EQ(text_at(response.body, "/choices/0/finish_reason"), "stop");
  EXPECT_TRUE(text_at(response.body, "/id").starts_with("chatcmpl-"));
  const std::int64_t prompt = at(response.body, "/usage/prompt_tokens").as_int64();
  const std::int64_t output = at(response.body, "/usage/completion_tokens").as_int64();
  EXPECT_EQ(prompt, static_cast<std::int64_t>(must(tokenizer->encode("[gMASK]<sop><|user|>Define lantern.<|assistant|></think>")).size()));
  EXPECT_EQ(output, static_cast<std::int64_t>(must(tokenizer->encode(kLantern)).size()) + 1);  // and the one that ends it
  EXPECT_EQ(at(response.body, "/usage/total_tokens").as_int64(), prompt + output);
}

// What a stream says, put together as a client does.
struct Streamed {
  std::string content, reasoning, finish_reason;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  std::vector<std::string> events;
};
Streamed read_stream(const ClientResponse& response) {
  Streamed streamed{.events = event_data(response.body)};
  for (const std::string& event : streamed.events) {
    if (event == "[DONE]" || at(event, "/choices/0").is_null()) continue;
    const auto add = [&](std::string& to, const std::string& pointer) {
      if (at(event, pointer).is_string()) to += text_at(event, pointer);
    };
    add(streamed.content, "/choices/0/delta/content");
    add(streamed.reasoning, "/choices/0/delta/reasoning_content");
    add(streamed.finish_reason, "/choices/0/finish_reason");
    for (std::size_t i = 0; !at(event, fmt::format("/choices/0/delta/tool_calls/{}", i)).is_null(); ++i) {
      const std::string call = fmt::format("/choices/0/delta/tool_calls/{}", i);
      const auto index = static_cast<std::size_t>(at(event, call + "/index").as_int64());
      if (index >= streamed.calls.size()) streamed.calls.resize(index + 1);
      add(streamed.calls[index].first, call + "/function/name");
      add(streamed.calls[index].second, call + "/function/arguments");
    }
  }
  return streamed;
}

TEST_F(Chat, StreamsTheSameAnswer) {
  start();
  const ClientResponse response = post("/v1/chat/completions", lantern(R"(,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_TRUE(response.complete);
  EXPECT_TRUE(response.header("content-type").starts_with("text/event-stream"));
  const Streamed streamed = read_stream(response);
  EXPECT_EQ(streamed.content, kLantern);
  EXPECT_EQ(streamed.finish_reason, "stop");
  ASSERT_GE(streamed.events.size(), 4u);
  EXPECT_EQ(text_at(streamed.events.front(), "/choices/0/delta/role"), "assistant");
  EXPECT_EQ(text_at(streamed.events.front(), "/object"), "chat.completion.chunk");
  EXPECT_EQ(streamed.events.back(), "[DONE]");
  const std::string usage = streamed.events[streamed.events.size() - 2];
  EXPECT_TRUE(at(usage, "/choices").as_array().empty());
  EXPECT_EQ(at(usage, "/usage/completion_tokens").as_int64(), static_cast<std::int64_t>(must(tokenizer->encode(kLantern)).size()) + 1);
  for (const std::string& event : streamed.events) {
    EXPECT_TRUE(event == "[DONE]" || text_at(event, "/id") == text_at(streamed.events.front(), "/id")) << event;
  }
}

TEST_F(Chat, StopStringsEndTheAnswer) {
  start();
  for (const char* stream : {"false", "true"}) {
    const ClientResponse response =
        post("/v1/chat/completions", lantern(fmt::format(R"(,"stop":[" protective","zzz"],"stream":{})", stream)));
    ASSERT_EQ(response.status, 200) << response.body;
    const bool streams = std::string_view(stream) == "true";
    EXPECT_EQ(streams ? read_stream(response).content : text_at(response.body, "/choices/0/message/content"), "light in a transparent");
    EXPECT_EQ(streams ? read_stream(response).finish_reason : text_at(response.body, "/choices/0/finish_reason"), "stop");
  }
  wait_until_idle();
}

TEST_F(Chat, MaxTokensEndsTheAnswer) {
  start();
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    const ClientResponse response = post("/v1/chat/completions", lantern(fmt::format(R"(,"{}":2)", name)));
    EXPECT_EQ(text_at(response.body, "/choices/0/finish_reason"), "length");
    EXPECT_EQ(at(response.body, "/usage/completion_tokens").as_int64(), 2);
  }
}

TEST_F(Chat, SeveralChoices) {
  start();
  const ClientResponse response = post("/v1/chat/completions", lantern(R"(,"n":3)"));
  ASSERT_EQ(at(response.body, "/choices").as_array().size(), 3u) << response.body;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(at(response.body, fmt::format("/choices/{}/index", i)).as_int64(), i);
    EXPECT_EQ(text_at(response.body, fmt::format("/choices/{}/message/content", i)), kLantern);
  }
}

TEST_F(Chat, SeedsRepeatAnswers) {
  start();
  const std::string body = R"({"messages":[{"role":"user","content":"Say something."}],"temperature":2,"top_p":1,"max_tokens":24,"seed":)";
  const auto answer = [&](int seed) {
    const ClientResponse response = post("/v1/chat/completions", body + std::to_string(seed) + "}");
    return text_at(response.body, "/choices/0/message");
  };
  const std::string first = answer(1);
  EXPECT_EQ(answer(1), first);
  EXPECT_NE(answer(2), first);
}

TEST_F(Chat, LogprobsAreThoseOfTheAnswersTokens) {
  start();
  const ClientResponse response = post("/v1/chat/completions", lantern(R"(,"logprobs":true)"));
  const boost::json::value content = at(response.body, "/choices/0/logprobs/content");
  ASSERT_TRUE(content.is_array()) << response.body;
  std::string text;
  for (const boost::json::value& token : content.as_array()) {
    EXPECT_LE(token.at("logprob").to_number<double>(), 0);
    EXPECT_GT(token.at("logprob").to_number<double>(), -1);  // the model is sure of what it has learnt
    for (const boost::json::value& byte : token.at("bytes").as_array()) text += static_cast<char>(byte.as_int64());
  }
  EXPECT_EQ(text, kLantern);
}

TEST_F(Chat, LogitBiasForbidsATokenAndIgnoreEosGoesOn) {
  start();
  const std::vector<TokenId> ids = must(tokenizer->encode(kLantern));
  const ClientResponse biased = post("/v1/chat/completions", lantern(fmt::format(R"(,"logit_bias":{{"{}":-100}})", ids.front())));
  EXPECT_FALSE(text_at(biased.body, "/choices/0/message/content").starts_with("light"));
  const ClientResponse long_one = post("/v1/chat/completions", lantern(R"(,"ignore_eos":true,"max_tokens":60)"));
  EXPECT_EQ(at(long_one.body, "/usage/completion_tokens").as_int64(), 60);
  EXPECT_EQ(text_at(long_one.body, "/choices/0/finish_reason"), "length");
}

TEST_F(Chat, RefusalsSayWhatToChange) {
  start();
  const ClientResponse other = post("/v1/chat/completions", lantern(R"(,"model":"gpt-7")"));
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(text_at(other.body, "/error/code"), "model_not_found");
  EXPECT_NE(text_at(other.body, "/error/message").find("pocket"), std::string::npos);
  EXPECT_EQ(post("/v1/chat/completions", lantern(R"(,"model":"models/pocket")")).status, 200);

  const ClientResponse too_long = post("/v1/chat/completions", lantern(R"(,"max_tokens":2047)"));
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(text_at(too_long.body, "/error/code"), "context_length_exceeded");
  std::string words;
  for (int i = 0; i < 3000; ++i) words += " lantern";
  const ClientResponse prompt = post("/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + words + R"("}]})");
  EXPECT_EQ(prompt.status, 400);
  EXPECT_EQ(text_at(prompt.body, "/error/code"), "context_length_exceeded");

  const ClientResponse kwargs = post("/v1/chat/completions", R"({"messages":[{"role":"tool","content":"x"}],"temperature":3000})");
  EXPECT_EQ(kwargs.status, 400);
  EXPECT_EQ(text_at(kwargs.body, "/error/param"), "temperature");
  expect_alive();
}

// --- the model's tasks ---------------------------------------------------------------------------------------------

struct Task {
  std::string name, prompt, expected, compare;
  std::int64_t max_tokens = 0;
};

std::vector<Task> read_tasks() {
  const JsonDocument document = must(read_json_file("tests/data/pocket-tasks.json"));
  std::vector<Task> tasks;
  for (const JsonNode& node : must(must(document.root().required("tasks")).as_array())) {
    const auto text = [&](const char* key) { return must(must(node.required(key)).as_string()); };
    tasks.push_back({.name = text("name"),
                     .prompt = text("prompt"),
                     .expected = text("expected"),
                     .compare = text("compare"),
                     .max_tokens = must(must(node.required("max_tokens")).as_int64(1, 1000))});
  }
  return tasks;
}

std::string completion_body(const Task& task, bool stream) {
  boost::json::object body{{"prompt", task.prompt},       {"max_tokens", task.max_tokens}, {"temperature", 0},
                           {"add_special_tokens", false}, {"skip_special_tokens", false},  {"stream", stream}};
  return boost::json::serialize(body);
}

std::string completion_text(const ClientResponse& response, bool stream) {
  if (!stream) return text_at(response.body, "/choices/0/text");
  std::string text;
  for (const std::string& event : event_data(response.body)) {
    if (event != "[DONE]") text += text_at(event, "/choices/0/text");
  }
  return text;
}

std::string compared(const Task& task, const std::string& answer) {
  const std::size_t call = answer.find("<tool_call>");
  return task.compare == "from_tool_call" ? answer.substr(std::min(call, answer.size())) : answer;
}

// Sixteen clients at once, each with a connection that it keeps, streaming and not: nothing lost, nothing mixed.
TEST_F(Chat, SixteenClientsGetTheirOwnAnswers) {
  start();
  const std::vector<Task> tasks = read_tasks();
  constexpr std::size_t kClients = 16;
  std::vector<std::string> failures(kClients);
  std::vector<std::thread> clients;
  for (std::size_t c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      try {
        Client client(server->port());
        for (std::size_t i = c; i < tasks.size(); i += kClients) {
          const bool stream = (i / kClients + c) % 2 == 0;
          const ClientResponse response = client.post("/v1/completions", completion_body(tasks[i], stream));
          const std::string answer = compared(tasks[i], completion_text(response, stream));
          if (response.status != 200 || answer != tasks[i].expected) failures[c] += tasks[i].name + ": " + response.body + "\n";
        }
      } catch (const std::exception& error) { failures[c] += error.what(); }
    });
  }
  for (std::thread& client : clients) client.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  wait_until_idle();
}

// A tool call, its result, and the answer: as text in /v1/completions, typed in a chat.
TEST_F(Chat, ToolCallsAreTyped) {
  start();
  const std::string body =
      R"({"messages":[{"role":"user","content":"Please add 6997 and 6578."}],"temperature":0,"stream":STREAM,)"
      R"("chat_template_kwargs":{"enable_thinking":false},"tools":[{"type":"function","function":{"name":"add",)"
      R"("description":"Adds two integers.","parameters":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},)"
      R"("required":["a","b"]}}},{"type":"function","function":{"name":"now","description":"Current time.",)"
      R"("parameters":{"type":"object","properties":{}}}}]})";
  const auto with = [&](const char* stream) {
    std::string text = body;
    return text.replace(text.find("STREAM"), 6, stream);
  };
  const ClientResponse whole = post("/v1/chat/completions", with("false"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  ASSERT_EQ(text_at(whole.body, "/choices/0/finish_reason"), "tool_calls") << whole.body;
  const std::string call = "/choices/0/message/tool_calls/0";
  EXPECT_EQ(text_at(whole.body, call + "/type"), "function");
  EXPECT_EQ(text_at(whole.body, call + "/function/name"), "add");
  const std::string arguments = text_at(whole.body, call + "/function/arguments");
  EXPECT_EQ(at(arguments, "/a"), boost::json::value(6997)) << arguments;
  EXPECT_EQ(at(arguments, "/b"), boost::json::value(6578)) << arguments;
  const Streamed streamed = read_stream(post("/v1/chat/completions", with("true")));
  EXPECT_EQ(streamed.finish_reason, "tool_calls");
  ASSERT_EQ(streamed.calls.size(), 1u);
  EXPECT_EQ(streamed.calls[0].first, "add");
  EXPECT_EQ(streamed.calls[0].second, arguments);
}

TEST_F(Chat, CompletionsTakeIdsListsAndEcho) {
  start();
  const Task task = read_tasks().front();
  const std::vector<TokenId> ids = must(tokenizer->encode(task.prompt));
  boost::json::object body{{"prompt", boost::json::array(ids.begin(), ids.end())}, {"max_tokens", task.max_tokens}, {"temperature", 0}};
  EXPECT_EQ(text_at(post("/v1/completions", boost::json::serialize(body)).body, "/choices/0/text"), task.expected);
  body["prompt"] = boost::json::array({boost::json::array(ids.begin(), ids.end()), boost::json::array(ids.begin(), ids.end())});
  body["echo"] = true;
  const ClientResponse both = post("/v1/completions", boost::json::serialize(body));
  for (const char* choice : {"/choices/0/text", "/choices/1/text"}) EXPECT_EQ(text_at(both.body, choice), task.prompt + task.expected);
  body["echo"] = false;
  body["prompt"] = boost::json::array(ids.begin(), ids.end());
  body["logprobs"] = 0;
  const ClientResponse logprobs = post("/v1/completions", boost::json::serialize(body));
  std::string joined;
  const boost::json::value tokens = at(logprobs.body, "/choices/0/logprobs/tokens");
  for (const boost::json::value& token : tokens.as_array()) joined += token.as_string().c_str();
  EXPECT_EQ(joined, task.expected);
  EXPECT_EQ(at(logprobs.body, "/choices/0/logprobs/text_offset/0"), boost::json::value(0));
}

}  // namespace
}  // namespace reckoner
