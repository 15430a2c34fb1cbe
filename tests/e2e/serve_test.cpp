// `reckoner serve` as a process: its address, signals, and an end that loses nothing.
#include <gtest/gtest.h>
#include <signal.h>

#include "client.h"
#include "program.h"
#include "running_server.h"

namespace reckoner {
namespace {

// Asks for a stream of so many tokens, and waits for its first event.
bool begin_stream(Client& client, int max_tokens) {
  const std::string body =
      R"({"messages":[{"role":"user","content":"x"}],"ignore_eos":true,"stream":true,"max_tokens":)" + std::to_string(max_tokens) + "}";
  return client.send(post_text("/v1/chat/completions", body)) && client.receive_until("data: ");
}

TEST(Serve, PrintsItsAddressAndNothingElse) {
  RunningServer server({"--quiet"});
  EXPECT_TRUE(server.address().starts_with("http://127.0.0.1:")) << server.address();
  EXPECT_EQ(Client(server.port()).get("/ready").status, 200);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
  EXPECT_EQ(server.notes(), "");
}

TEST(Serve, SigtermLetsRunningRequestsFinish) {
  RunningServer server({});
  Client client(server.port());
  ASSERT_TRUE(begin_stream(client, 300));
  server.signal(SIGTERM);
  const ClientResponse answer = client.receive();
  EXPECT_TRUE(answer.complete);
  ASSERT_FALSE(event_data(answer.body).empty());
  EXPECT_EQ(event_data(answer.body).back(), "[DONE]");
  EXPECT_EQ(server.wait(), 0);
  EXPECT_NE(server.notes().find("1 requests may finish"), std::string::npos) << server.notes();
}

TEST(Serve, TheDrainEndsInTime) {
  RunningServer server({"--drain-timeout", "0"});
  Client client(server.port());
  ASSERT_TRUE(begin_stream(client, 1900));
  server.signal(SIGINT);
  EXPECT_EQ(server.wait(), 0);
  EXPECT_FALSE(client.receive().complete);
  EXPECT_NE(server.notes().find("1 requests were cut off"), std::string::npos) << server.notes();
}

// An hour's drain ends with the second signal.
TEST(Serve, ASecondSignalEndsAtOnce) {
  RunningServer server({"--drain-timeout", "3600"});
  Client client(server.port());
  ASSERT_TRUE(begin_stream(client, 1900));
  server.signal(SIGTERM);
  while (server.notes().find("may finish") == std::string::npos) {}
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
  EXPECT_NE(server.notes().find("cut off"), std::string::npos) << server.notes();
}

TEST(Serve, APortThatIsTakenIsSaid) {
  const RunningServer first({});
  const ProgramRun second = run_program({"serve", "models/pocket", "--port", std::to_string(first.port())});
  EXPECT_EQ(second.status, 1);
  EXPECT_NE(second.err.find(std::to_string(first.port())), std::string::npos) << second.err;
  EXPECT_NE(second.err.find("in use"), std::string::npos) << second.err;
}

// Nothing of a killed server is in the way of the next one on the same port.
TEST(Serve, StartsAgainAfterAKill) {
  std::uint16_t port = 0;
  {
    RunningServer first({});
    port = first.port();
    EXPECT_EQ(Client(port).get("/ready").status, 200);
    first.signal(SIGKILL);
    EXPECT_EQ(first.wait(), 128 + SIGKILL);
  }
  RunningServer again({"--port", std::to_string(port)});
  EXPECT_EQ(again.port(), port);
  EXPECT_EQ(Client(port).get("/ready").status, 200);
}

}  // namespace
}  // namespace reckoner
