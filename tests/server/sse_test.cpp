// Server-sent events, by the examples of the HTML standard: every line of data has its own field, an empty line ends the event.
#include "server/http/sse.h"

#include <gtest/gtest.h>

#include "client.h"
#include "server/http/response_text.h"

namespace reckoner {
namespace {

TEST(ServerSentEvents, OneLine) { EXPECT_EQ(sse_event("{\"a\":1}"), "data: {\"a\":1}\n\n"); }

TEST(ServerSentEvents, NameAndSeveralLines) {
  EXPECT_EQ(sse_event("one\ntwo\r\nthree\rfour", "message_start"),
            "event: message_start\ndata: one\ndata: two\ndata: three\ndata: four\n\n");
}

TEST(ServerSentEvents, EmptyDataIsStillAnEvent) { EXPECT_EQ(sse_event(""), "data: \n\n"); }

TEST(ServerSentEvents, WhatIsWrittenIsRead) {
  const std::vector<std::string> data = {"a", "b\nc", "[DONE]"};
  std::string stream;
  for (const std::string& one : data) stream += sse_event(one);
  EXPECT_EQ(event_data(stream), data);
}

TEST(ResponseText, LengthChunksAndClose) {
  const HttpResponse response{.status = 200, .body = {}, .content_type = "text/plain", .headers = {{"A", "b"}}};
  EXPECT_EQ(header_text(response, {}, KeepAlive::yes, BodyEnd::length, 5),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nA: b\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_NE(header_text(response, {}, KeepAlive::yes, BodyEnd::chunks, 0).find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  const std::string closing = header_text(response, {}, KeepAlive::no, BodyEnd::close, 0);
  EXPECT_EQ(closing.find("Content-Length"), std::string::npos);
  EXPECT_NE(closing.find("Connection: close\r\n"), std::string::npos);
  EXPECT_EQ(chunk_text("twenty-six characters long"), "1a\r\ntwenty-six characters long\r\n");
}

TEST(ResponseText, NoHeaderHoldsALineBreak) {
  const HttpResponse response{.headers = {{"A", "b\r\nSet-Cookie: x"}, {"C\nD", "e"}}};
  const std::string text = header_text(response, {}, KeepAlive::no, BodyEnd::length, 0);
  EXPECT_EQ(text.find("Set-Cookie"), std::string::npos);
  EXPECT_EQ(text.find("D: e"), std::string::npos);
}

}  // namespace
}  // namespace reckoner
