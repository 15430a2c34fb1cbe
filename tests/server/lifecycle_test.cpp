// Clients that leave, queues that are full, servers that end.
#include <thread>

#include "test_server.h"

namespace reckoner {
namespace {

class Lifecycle : public ServerTest {};

// An answer that nobody waits for stops long before its 1900 tokens.
TEST_F(Lifecycle, AClientThatLeavesAStreamCancelsIt) {
  start();
  {
    Client client(server->port());
    client.send(post_text("/v1/chat/completions", long_request(R"(,"stream":true)")));
    ASSERT_TRUE(client.receive_until("data: "));
    wait_until_running(1);
  }
  wait_until_idle();
  EXPECT_LT(server->load().engine.generated_tokens, 1900);
}

TEST_F(Lifecycle, AClientThatLeavesBeforeItsAnswerCancelsIt) {
  start();
  {
    Client client(server->port());
    client.send(post_text("/v1/chat/completions", long_request(R"(,"n":3)")));
    wait_until_running(3);
  }
  wait_until_idle();
  EXPECT_LT(server->load().engine.generated_tokens, 3 * 1900);
}

TEST_F(Lifecycle, ManyClientsThatLeaveLeaveNothingBehind) {
  start();
  for (int round = 0; round < 20; ++round) {
    Client client(server->port());
    client.send(post_text("/v1/chat/completions", long_request(round % 2 == 0 ? R"(,"stream":true)" : "")));
    if (round % 3 == 0) wait_until_running(1);
  }
  while (server->unanswered() > 0) std::this_thread::yield();
  wait_until_idle();
  expect_alive();
}

TEST_F(Lifecycle, AFullQueueSaysWhenToComeBack) {
  start({.max_running = 1, .max_queued = 1});
  Client first(server->port());
  Client second(server->port());
  // One after the other: while the first still waits to be admitted it takes the only place in the queue.
  first.send(post_text("/v1/chat/completions", long_request()));
  while (server->load().running < 1) std::this_thread::yield();
  second.send(post_text("/v1/chat/completions", long_request()));
  while (server->load().waiting < 1) std::this_thread::yield();
  const ClientResponse refused = post("/v1/chat/completions", long_request());
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("retry-after"), "1");
  EXPECT_EQ(text_at(refused.body, "/error/type"), "rate_limit_error");
  expect_alive();
  first.close();
  second.close();
  wait_until_idle();
  EXPECT_EQ(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"max_tokens":1})").status, 200);
}

TEST_F(Lifecycle, DrainingFinishesWhatRunsAndRefusesWhatIsNew) {
  start();
  Client running(server->port());
  Client idle(server->port());
  EXPECT_EQ(idle.get("/ready").status, 200);
  running.send(post_text("/v1/chat/completions",
                         R"({"messages":[{"role":"user","content":"x"}],"ignore_eos":true,"max_tokens":400,"stream":true})"));
  ASSERT_TRUE(running.receive_until("data: "));
  server->drain();
  const ClientResponse refused = idle.post("/v1/chat/completions", long_request());
  EXPECT_EQ(refused.status, 503);
  EXPECT_FALSE(refused.header("retry-after").empty());
  EXPECT_EQ(refused.header("connection"), "close");
  EXPECT_TRUE(idle.is_closed());
  EXPECT_EQ(get("/ready").status, 503);
  EXPECT_EQ(get("/health").status, 200);
  const ClientResponse finished = running.receive();
  EXPECT_TRUE(finished.complete);
  ASSERT_FALSE(event_data(finished.body).empty());
  EXPECT_EQ(event_data(finished.body).back(), "[DONE]");
  while (server->unanswered() > 0) std::this_thread::yield();
}

// The server ends in the middle of answers: their connections close, and nothing else happens.
TEST_F(Lifecycle, EndingCutsOffWhatRuns) {
  start();
  Client streaming(server->port());
  Client waiting(server->port());
  streaming.send(post_text("/v1/chat/completions", long_request(R"(,"stream":true)")));
  waiting.send(post_text("/v1/chat/completions", long_request()));
  ASSERT_TRUE(streaming.receive_until("data: "));
  wait_until_running(2);
  server.reset();
  EXPECT_FALSE(streaming.receive().complete);
  EXPECT_TRUE(waiting.is_closed());
}

TEST_F(Lifecycle, KeysAreAskedFor) {
  start({.api_key = "secret"});
  Client client(server->port());
  for (const char* header : {"", "Authorization: Bearer wrong!\r\n", "Authorization: Bearer secre\r\n", "Authorization: secret\r\n",
                             "Authorization: Bearer secretsecret\r\n", "x-api-key: Secret\r\n"}) {
    SCOPED_TRACE(header);
    const ClientResponse refused = client.get("/v1/models", header);
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(text_at(refused.body, "/error/code"), "invalid_api_key");
  }
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(client.get("/v1/models", "X-Api-Key: secret\r\n").status, 200);
  EXPECT_EQ(client.get("/health").status, 200);
}

TEST_F(Lifecycle, BrowsersMayAskWhenAllowed) {
  start({.cors_origin = "https://chat.example"});
  Client client(server->port());
  client.send(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: test\r\nOrigin: https://chat.example\r\nAccess-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: content-type\r\n\r\n");
  const ClientResponse preflight = client.receive();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(preflight.header("access-control-allow-headers"), "content-type");
  EXPECT_NE(preflight.header("access-control-allow-methods").find("POST"), std::string::npos);
  EXPECT_EQ(client.get("/health").header("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(client.post("/v1/chat/completions", "{}").header("access-control-allow-origin"), "https://chat.example");
}

TEST_F(Lifecycle, NoBrowserOfAnotherOriginOtherwise) {
  start();
  EXPECT_EQ(get("/health").header("access-control-allow-origin"), "");
}

}  // namespace
}  // namespace reckoner
