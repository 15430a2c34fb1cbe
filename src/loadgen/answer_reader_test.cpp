#include "loadgen/answer_reader.h"

#include <gtest/gtest.h>

namespace reckoner::loadgen {
namespace {

constexpr std::string_view kStream = "text/event-stream; charset=utf-8";

std::string event(std::string_view json) { return "data: " + std::string(json) + "\n\n"; }

// Pieces come at 1, 2, 3 ... seconds; the end a second after the last one.
Timeline read(const std::vector<std::string>& pieces, int status = 200, std::string_view type = kStream) {
  Timeline timeline{.started = true};
  AnswerReader reader(timeline);
  reader.head(status, type);
  double at_s = 0;
  for (const std::string& piece : pieces) {
    if (!reader.body(piece, ++at_s)) break;
  }
  reader.end(at_s + 1);
  return timeline;
}

void expect_failure(const Timeline& timeline, FailureKind kind, int status, const std::string& part) {
  ASSERT_TRUE(timeline.failure.has_value()) << part;
  EXPECT_EQ(timeline.failure->kind, kind) << timeline.failure->message;
  EXPECT_EQ(timeline.failure->status, status);
  EXPECT_NE(timeline.failure->message.find(part), std::string::npos) << timeline.failure->message;
}

TEST(AnswerReader, ChatWithUsageInEveryPiece) {
  const Timeline timeline = read({
      event(R"({"choices":[{"delta":{"role":"assistant","content":""}}],"usage":{"prompt_tokens":9,"completion_tokens":0}})"),
      event(R"({"choices":[{"delta":{"reasoning_content":"hm "}}],"usage":{"prompt_tokens":9,"completion_tokens":1}})"),
      event(R"({"choices":[{"delta":{"content":"a b"}}],"usage":{"prompt_tokens":9,"completion_tokens":3}})"),
      event(R"({"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4}})"),
      event(R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}})") + event("[DONE]"),
  });
  ASSERT_FALSE(timeline.failure.has_value()) << timeline.failure->message;
  EXPECT_EQ(timeline.input_tokens, 9);
  EXPECT_EQ(timeline.output_tokens, 4);
  EXPECT_TRUE(timeline.counted);
  EXPECT_EQ(timeline.text, "hm a b");
  EXPECT_EQ(timeline.finish_reason, "stop");
  EXPECT_EQ(timeline.end_s, 4);
  // The role is no token; the end token, which has no text, is one.
  ASSERT_EQ(timeline.chunks.size(), 3u);
  EXPECT_EQ(timeline.chunks[0].at_s, 2);
  EXPECT_EQ(timeline.chunks[0].tokens, 1);
  EXPECT_EQ(timeline.chunks[1].tokens, 2);
  EXPECT_EQ(timeline.chunks[2].tokens, 1);
}

TEST(AnswerReader, CompletionWithUsageAtTheEnd) {
  const Timeline timeline = read(
      {event(R"({"choices":[{"text":"a"}],"usage":null})"), event(R"({"choices":[{"text":"b"}]})"),
       event(R"({"choices":[{"text":"","finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":5}})"), event("[DONE]")});
  ASSERT_FALSE(timeline.failure.has_value());
  EXPECT_EQ(timeline.output_tokens, 5);
  EXPECT_EQ(timeline.input_tokens, 3);
  ASSERT_EQ(timeline.chunks.size(), 2u);  // the last piece brought no text, and its usage is the sum of all
  EXPECT_EQ(timeline.chunks[0].tokens, 0);
}

TEST(AnswerReader, WithoutUsagePiecesCount) {
  const Timeline timeline = read({event(R"({"choices":[{"text":"a"}]})"), event(R"({"choices":[{"text":"b","finish_reason":"stop"}]})")});
  ASSERT_FALSE(timeline.failure.has_value());  // a finish reason is enough
  EXPECT_EQ(timeline.output_tokens, 2);
  EXPECT_FALSE(timeline.counted);
}

TEST(AnswerReader, ToolCallsAreTokens) {
  const Timeline timeline =
      read({event(R"({"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}}]})"), event("[DONE]")});
  ASSERT_FALSE(timeline.failure.has_value());
  EXPECT_EQ(timeline.text, "f{}");
}

TEST(AnswerReader, Statuses) {
  expect_failure(read({R"({"error": {"message": "too many\nrequests", "code": 429}})"}, 429, "application/json"), FailureKind::status, 429,
                 "too many requests");
  expect_failure(read({R"({"error": "plain"})"}, 500, ""), FailureKind::status, 500, "plain");
  expect_failure(read({R"({"detail": "Not Found"})"}, 404, "application/json"), FailureKind::status, 404, "Not Found");
  expect_failure(read({R"({"message": "m"})"}, 400, "application/json"), FailureKind::status, 400, "m");
  expect_failure(read({"<html>Bad", " Gateway\xFF\x1B[31m</html>"}, 502, "text/html"), FailureKind::status, 502, "<html>Bad Gateway? [31m");
  expect_failure(read({}, 503, ""), FailureKind::status, 503, "(no message)");
  // A huge page does not fill the memory, and the message stays short.
  const Timeline huge = read(std::vector<std::string>(100, std::string(1000, 'x')), 500, "text/html");
  expect_failure(huge, FailureKind::status, 500, "xxx");
  EXPECT_LT(huge.failure->message.size(), 400u);
}

TEST(AnswerReader, BadStreams) {
  const std::string token = event(R"({"choices":[{"text":"a"}]})");
  expect_failure(read({token}), FailureKind::cut, 200, "without [DONE]");
  expect_failure(read({event("[DONE]")}), FailureKind::empty, 200, "no token");
  expect_failure(read({token, event("{\"choices\": [")}), FailureKind::malformed, 200, "no JSON object");
  expect_failure(read({token, event("[1]"), event("[DONE]")}), FailureKind::malformed, 200, "no JSON object");
  expect_failure(read({token, event(R"({"error":{"message":"value is not finite"}})"), event("[DONE]")}), FailureKind::server, 200,
                 "value is not finite");
  expect_failure(read({R"({"choices":[]})"}, 200, "application/json"), FailureKind::malformed, 200, "text/event-stream");
  expect_failure(read({"data: " + std::string(SseParser::kMaxEventBytes, 'x')}), FailureKind::malformed, 200, "too large");
  expect_failure(read({}), FailureKind::cut, 200, "without [DONE]");
}

TEST(AnswerReader, BrokenOff) {
  const Failure why = {.kind = FailureKind::timeout, .message = "nothing came"};
  Timeline cut{.started = true};
  AnswerReader reader(cut);
  reader.head(200, kStream);
  reader.body(event(R"({"choices":[{"text":"a","finish_reason":"stop"}]})"), 1);
  reader.broken_off(why, 2);
  expect_failure(cut, FailureKind::timeout, 200, "nothing came");
  EXPECT_EQ(cut.end_s, 2);

  // All was said before the connection broke.
  Timeline done{.started = true};
  AnswerReader after(done);
  after.head(200, kStream);
  after.body(event(R"({"choices":[{"text":"a","finish_reason":"stop"}]})") + event("[DONE]"), 1);
  after.broken_off(why, 2);
  EXPECT_FALSE(done.failure.has_value());
  EXPECT_EQ(done.end_s, 1);

  Timeline none{.started = true};
  AnswerReader(none).broken_off({.kind = FailureKind::connect, .message = "refused"}, 3);
  expect_failure(none, FailureKind::connect, 0, "refused");
}

}  // namespace
}  // namespace reckoner::loadgen
