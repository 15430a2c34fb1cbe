#include "loadgen/sse_parser.h"

#include <gtest/gtest.h>

#include <vector>

namespace reckoner::loadgen {
namespace {

std::vector<std::string> events_of(const std::vector<std::string>& pieces) {
  SseParser parser;
  std::vector<std::string> events;
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(parser.feed(piece, [&](const SseEvent& event) {
      events.push_back(event.name + "|" + event.data);
      return true;
    }));
  }
  return events;
}

using Events = std::vector<std::string>;

// The examples of the HTML standard's chapter on server-sent events, and what it says about fields.
TEST(SseParser, Standard) {
  EXPECT_EQ(events_of({"data: YHOO\ndata: +2\ndata: 10\n\n"}), (Events{"|YHOO\n+2\n10"}));
  EXPECT_EQ(events_of({": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n"}),
            (Events{"|first event", "|second event", "| third event"}));
  EXPECT_EQ(events_of({"data\n\ndata\ndata\n\ndata:"}), (Events{"|", "|\n"}));
  EXPECT_EQ(events_of({"event: add\ndata: 1\n\nevent: gone\n\ndata: 2\n\n"}), (Events{"add|1", "|2"}));
  EXPECT_EQ(events_of({"\xEF\xBB\xBF"
                       "data: a\n\n"}),
            (Events{"|a"}));
  EXPECT_EQ(events_of({"retry: 10\nnothing: 3\ndata: {\"a\": 1}\n\n"}), (Events{"|{\"a\": 1}"}));
}

TEST(SseParser, LineEnds) {
  for (const char* text :
       {"data: a\n\ndata: b\n\n", "data: a\r\rdata: b\r\r", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\n\ndata: b\n\r\n"}) {
    EXPECT_EQ(events_of({text}), (Events{"|a", "|b"})) << testing::PrintToString(std::string(text));
  }
}

TEST(SseParser, CutAtEveryByte) {
  const std::string text =
      "\xEF\xBB\xBF: hi\r\nevent: x\r\ndata: {\"t\": \"\xC3\xA9\"}\r\ndata: more\r\n\r\ndata: [DONE]\n\ndata: unfinished\n";
  const Events expected = {"x|{\"t\": \"\xC3\xA9\"}\nmore", "|[DONE]"};
  EXPECT_EQ(events_of({text}), expected);
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  EXPECT_EQ(events_of(bytes), expected);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) EXPECT_EQ(events_of({text.substr(0, cut), text.substr(cut)}), expected) << cut;
}

TEST(SseParser, UnfinishedEvent) {
  SseParser parser;
  const auto none = [](const SseEvent&) { return true; };
  EXPECT_FALSE(parser.is_inside_event());
  parser.feed("data: a", none);
  EXPECT_TRUE(parser.is_inside_event());
  parser.feed("\n", none);
  EXPECT_TRUE(parser.is_inside_event());
  parser.feed("\n", none);
  EXPECT_FALSE(parser.is_inside_event());
}

TEST(SseParser, Limits) {
  int count = 0;
  const auto take = [&](const SseEvent&) { return ++count < 2; };
  SseParser exact(10);
  EXPECT_TRUE(exact.feed("data: 1234\n\n", take));  // a line of 10 bytes
  SseParser small(10);
  EXPECT_FALSE(small.feed("data: 12345\n\n", take));
  EXPECT_EQ(count, 1);
  SseParser lines(10);
  EXPECT_FALSE(lines.feed("data: 12\ndata: 34\ndata: 56\n\n", take));  // each line fits, the event does not
  // What was asked to stop stays stopped.
  SseParser parser;
  EXPECT_FALSE(parser.feed("data: 1\n\ndata: 2\n\ndata: 3\n\n", take));
  EXPECT_FALSE(parser.feed("data: 4\n\n", take));
  EXPECT_EQ(count, 2);
}

}  // namespace
}  // namespace reckoner::loadgen
