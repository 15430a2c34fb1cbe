// What hostile clients send: each gets a clear refusal or a closed connection, and the next client is answered.
#include <fmt/format.h>

#include <chrono>
#include <random>
#include <thread>

#include "test_server.h"

namespace reckoner {
namespace {

struct Attack {
  std::string name;
  std::string bytes;
  bool then_end_sending = true;  // otherwise the client stays, silent
};

constexpr std::size_t kMaxHeader = 4096;
constexpr std::size_t kMaxBody = std::size_t{64} << 10;
constexpr const char* kChat = "/v1/chat/completions";
const std::string kGood = R"({"messages":[{"role":"user","content":"Define lantern."}],"max_tokens":2})";

void add_broken_heads(std::vector<Attack>& attacks) {
  const std::vector<std::string> lines = {
      "GET\r\n\r\n",
      "GET /health\r\n\r\n",
      "GET /health HTTP/9.9\r\nHost: t\r\n\r\n",
      "GET /health HTTP/1.1\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost t\r\n\r\n",
      "GET /health HTTP/1.1\r\n: t\r\n\r\n",
      "GET /health HTTP/1.1\r\nHo st: t\r\n\r\n",
      "GET /hea lth HTTP/1.1\r\nHost: t\r\n\r\n",
      "G\x01T /health HTTP/1.1\r\nHost: t\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "SSH-2.0-OpenSSH_9.2\r\n",
      "{\"messages\":[]}\r\n\r\n",
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n",
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 1x\r\n\r\n1",
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999999999999999\r\n\r\n1",
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12",
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}\r\n",
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n"};
  for (const std::string& line : lines) attacks.push_back({"head " + line.substr(0, 70), line});
}

void add_floods(std::vector<Attack>& attacks) {
  const std::string start = "GET /health HTTP/1.1\r\nHost: t\r\n";
  attacks.push_back({"a long path", "GET /" + std::string(3 * kMaxHeader, 'a') + " HTTP/1.1\r\nHost: t\r\n\r\n"});
  attacks.push_back({"a long method", std::string(3 * kMaxHeader, 'G')});
  attacks.push_back({"a long header", start + "A: " + std::string(3 * kMaxHeader, 'a') + "\r\n\r\n"});
  attacks.push_back({"a long header name", start + std::string(3 * kMaxHeader, 'a') + ": b\r\n\r\n"});
  std::string many = start;
  for (int i = 0; i < 2000; ++i) many += fmt::format("X-{}: {}\r\n", i, i);
  attacks.push_back({"many headers", many + "\r\n"});
  attacks.push_back({"headers without end", many});
  attacks.push_back({"a body that is announced too large",
                     fmt::format("POST {} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{{", kChat, kMaxBody + 1)});
  attacks.push_back({"a body that is too large", post_text(kChat, std::string(2 * kMaxBody, ' '))});
  std::string chunks = fmt::format("POST {} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n", kChat);
  for (int i = 0; i < 80; ++i) chunks += "400\r\n" + std::string(1024, ' ') + "\r\n";
  attacks.push_back({"chunks that are too large together", chunks});
  attacks.push_back(
      {"a chunk extension without end",
       fmt::format("POST {} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1;", kChat) + std::string(4 * kMaxBody, 'x')});
}

void add_bodies(std::vector<Attack>& attacks) {
  const auto body = [&](std::string name, const std::string& text) {
    attacks.push_back({"body: " + std::move(name), post_text(kChat, text)});
  };
  for (const int depth : {65, 1000, 30000}) {
    body(fmt::format("{} arrays", depth), std::string(static_cast<std::size_t>(depth), '['));
    std::string objects;
    for (int i = 0; i < depth; ++i) objects += "{\"a\":";
    body(fmt::format("{} objects", depth), objects);
  }
  for (const char* text :
       {"", "null", "true", "0", "\"x\"", "[]", "{}", "nul", "{\"messages\"", "{\"messages\":[]}", "{\"messages\":{}}", "{'a':1}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],}", "\xef\xbb\xbf{}", "//{}", "NaN", "{\"a\":NaN}"})
    body(text, text);
  for (const char* bytes : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf8\x88\x80\x80\x80", "\xe2\x28\xa1", "\xf4\x90\x80\x80", "\xc3"})
    body("not UTF-8", R"({"messages":[{"role":"user","content":")" + std::string(bytes) + R"("}]})");
  for (const char* field : {"model", "messages", "temperature", "max_tokens", "stop", "tools", "tool_choice", "stream", "n", "seed",
                            "logit_bias", "response_format", "chat_template_kwargs", "top_logprobs"}) {
    for (const char* value : {"[[[]]]", "{\"a\":{\"b\":[1]}}", "\"\\u0000\"", "-1e308"}) {
      if (std::string_view(value) == "-1e308" && std::string_view(field) == "seed") continue;
      if (std::string_view(value).starts_with("{") && std::string_view(field) == "chat_template_kwargs") continue;
      if (std::string_view(value).starts_with("\"") && (std::string_view(field) == "stop")) continue;
      body(fmt::format("{} is {}", field, value),
           fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}],"max_tokens":1,"{}":{}}})", field, value));
    }
  }
}

// A good request, cut after every few bytes.
void add_truncations(std::vector<Attack>& attacks) {
  const std::string whole = post_text(kChat, kGood);
  for (std::size_t length = 1; length < whole.size(); length += 7)
    attacks.push_back({fmt::format("cut after {}", length), whole.substr(0, length)});
}

// A good request with a few bytes changed. Some stay good.
void add_mutations(std::vector<Attack>& attacks) {
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    std::string bytes = post_text(kChat, kGood);
    for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = static_cast<char>(random() % 256);
    attacks.push_back({fmt::format("mutation {}", i), bytes});
  }
}

std::vector<Attack> attacks() {
  std::vector<Attack> all;
  add_broken_heads(all);
  add_floods(all);
  add_bodies(all);
  add_truncations(all);
  add_mutations(all);
  return all;
}

class Hostile : public ServerTest {};

TEST_F(Hostile, EachIsRefusedOrClosedAndTheNextIsAnswered) {
  TestOptions options{.context = 256};
  options.limits.max_header_bytes = kMaxHeader;
  options.limits.max_body_bytes = kMaxBody;
  start(options);
  const std::vector<Attack> all = attacks();
  EXPECT_GE(all.size(), 200u);
  Client neighbour(server->port());
  for (const Attack& attack : all) {
    SCOPED_TRACE(attack.name);
    {
      Client client(server->port());
      client.send(attack.bytes);
      client.end_sending();
      const ClientResponse response = client.receive();
      const bool may_be_good = attack.name.starts_with("mutation");
      EXPECT_TRUE(response.status == 0 || (response.status >= 400 && response.status < 500) || response.status == 505 ||
                  (may_be_good && response.status == 200))
          << response.status << response.body;
      const bool refused = response.status >= 400;
      EXPECT_TRUE(!refused || text_at(response.body, "/error/message").size() > 10) << response.body;
    }
    ASSERT_EQ(neighbour.get("/health").status, 200);
  }
  wait_until_idle();
  EXPECT_EQ(text_at(post(kChat, kGood).body, "/object"), "chat.completion");
}

// The refusals that a client should be able to tell apart.
TEST_F(Hostile, LimitsHaveTheirOwnStatus) {
  TestOptions options;
  options.limits.max_header_bytes = kMaxHeader;
  options.limits.max_body_bytes = kMaxBody;
  start(options);
  const std::vector<std::pair<std::string, int>> cases = {
      {"GET /health HTTP/1.1\r\nHost: t\r\nA: " + std::string(2 * kMaxHeader, 'a') + "\r\n\r\n", 431},
      {post_text("/tokenize", std::string(kMaxBody + 1, ' ')), 413},
      {"GET /health HTTP/3.0\r\nHost: t\r\n\r\n", 505},
      {"GET /health HTTP/1.1\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400}};
  for (const auto& [bytes, status] : cases) {
    Client client(server->port());
    client.send(bytes);
    const ClientResponse response = client.receive();
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_EQ(response.header("connection"), "close");
    EXPECT_TRUE(client.is_closed());
  }
}

TEST_F(Hostile, SlowRequestsEnd) {
  TestOptions options;
  options.limits.request_timeout = std::chrono::milliseconds(200);
  options.limits.idle_timeout = std::chrono::milliseconds(200);
  start(options);
  for (const std::string& bytes :
       {std::string("GET /hea"), std::string("GET /health HTTP/1.1\r\nHost: t\r\n"), post_text(kChat, kGood).substr(0, 120)}) {
    Client client(server->port());
    client.send(bytes);
    EXPECT_EQ(client.receive().status, 408);
    EXPECT_TRUE(client.is_closed());
  }
  Client silent(server->port());
  EXPECT_TRUE(silent.is_closed());
  Client kept(server->port());
  EXPECT_EQ(kept.get("/health").status, 200);
  EXPECT_TRUE(kept.is_closed());
  expect_alive();
}

// A drop every now and then does not keep a request alive.
TEST_F(Hostile, DrippingRequestsEnd) {
  TestOptions options;
  options.limits.request_timeout = std::chrono::milliseconds(300);
  start(options);
  Client client(server->port());
  bool open = client.send("GET /health HTTP/1.1\r\nHost: t\r\nA: ");
  for (int i = 0; i < 1000 && open; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    open = client.send("a");
  }
  EXPECT_FALSE(open);
  expect_alive();
}

TEST_F(Hostile, TooManyConnectionsAreToldSo) {
  TestOptions options;
  options.limits.max_connections = 8;
  start(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<Client>(server->port()));
    ASSERT_EQ(clients.back()->get("/health").status, 200);
  }
  Client more(server->port());
  const ClientResponse refused = more.receive();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("retry-after"), "1");
  EXPECT_TRUE(more.is_closed());
  more.close();
  clients.clear();
  // The server needs a moment to see that they have gone.
  int status = 0;
  for (int i = 0; i < 1000 && status != 200; ++i) status = get("/health").status;
  EXPECT_EQ(status, 200);
}

// Nobody reads the answers: they pile up to the limit, then their work is cancelled.
TEST_F(Hostile, AClientThatNeverReadsIsGivenUp) {
  TestOptions options;
  options.limits.max_unsent_bytes = 4096;
  options.limits.write_timeout = std::chrono::milliseconds(500);
  start(options);
  Client client(server->port());
  std::string requests;
  for (int i = 0; i < 400; ++i) requests += post_text("/tokenize", R"({"prompt":")" + std::string(20000, 'x') + R"("})");
  std::thread sender([&] { client.send(requests); });
  sender.join();
  wait_until_idle();
  expect_alive();
}

}  // namespace
}  // namespace reckoner
