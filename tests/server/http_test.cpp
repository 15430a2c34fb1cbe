// HTTP itself: what a well-behaved client may do.
#include <fmt/format.h>

#include <set>

#include "server/routes/routes.h"
#include "test_server.h"

namespace reckoner {
namespace {

class Http : public ServerTest {};

TEST_F(Http, ConnectionsServeManyRequests) {
  start();
  Client client(server->port());
  for (int i = 0; i < 20; ++i) {
    const ClientResponse response = client.get("/health");
    ASSERT_EQ(response.status, 200);
    EXPECT_EQ(response.header("connection"), "keep-alive");
    EXPECT_EQ(response.body, R"({"status":"ok"})");
  }
  EXPECT_EQ(client.get("/health", "Connection: close\r\n").header("connection"), "close");
  EXPECT_TRUE(client.is_closed());
}

// Answers come in the order of the requests, also when the first takes longest.
TEST_F(Http, PipelinedRequestsAreAnsweredInOrder) {
  start();
  Client client(server->port());
  std::string requests =
      post_text("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"max_tokens":20,"ignore_eos":true})");
  requests +=
      post_text("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"max_tokens":3,"ignore_eos":true,"stream":true})");
  for (int i = 0; i < 50; ++i) requests += "GET /health HTTP/1.1\r\nHost: t\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: t\r\n\r\n";
  client.send(requests);
  EXPECT_EQ(at(client.receive().body, "/usage/completion_tokens"), boost::json::value(20));
  EXPECT_EQ(event_data(client.receive().body).back(), "[DONE]");
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(client.receive().status, 200);
    ASSERT_EQ(client.receive().status, 404);
  }
}

TEST_F(Http, RequestsMayComeByteByByte) {
  start();
  Client client(server->port());
  const std::string request = post_text("/tokenize", R"({"prompt":"a lantern"})");
  for (const char byte : request) ASSERT_TRUE(client.send({&byte, 1}));
  EXPECT_EQ(client.receive().status, 200);
}

TEST_F(Http, ChunkedBodiesAndExpectations) {
  start();
  Client client(server->port());
  client.send("POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\n9\r\nmpt\":\"a\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.receive().status, 200);
  client.send("POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 14\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.receive().status, 100);
  client.send("{\"prompt\":\"a\"}");
  EXPECT_EQ(client.receive().status, 200);
}

TEST_F(Http, OldClientsGetStreamsThatEndWithTheConnection) {
  start();
  Client client(server->port());
  const std::string body = R"({"messages":[{"role":"user","content":"x"}],"max_tokens":3,"stream":true})";
  client.send(fmt::format("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  const ClientResponse response = client.receive();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.header("transfer-encoding"), "");
  EXPECT_EQ(event_data(response.body).back(), "[DONE]");
}

TEST_F(Http, HeadOptionsAndWrongMethods) {
  start();
  Client client(server->port());
  client.send("HEAD /health HTTP/1.1\r\nHost: t\r\n\r\n");
  const ClientResponse head = client.receive(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("content-length"), "15");
  client.send("OPTIONS /v1/models HTTP/1.1\r\nHost: t\r\n\r\n");
  const ClientResponse options = client.receive();
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.header("allow"), "GET, HEAD, OPTIONS");
  for (const char* method : {"GET", "PUT", "DELETE", "PATCH", "HEAD"}) {
    SCOPED_TRACE(method);
    client.send(fmt::format("{} /v1/chat/completions HTTP/1.1\r\nHost: t\r\n\r\n", method));
    const ClientResponse wrong = client.receive(std::string_view(method) == "HEAD");
    EXPECT_EQ(wrong.status, 405);
    EXPECT_EQ(wrong.header("allow"), "POST, OPTIONS");
  }
}

TEST_F(Http, UnknownPathsAreToldWhatThereIs) {
  start();
  for (const char* path : {"/v1", "/v1/chat", "/v1/chat/completions/", "/V1/models", "/health/", "//health", "/%68ealth"}) {
    SCOPED_TRACE(path);
    const ClientResponse response = get(path);
    EXPECT_EQ(response.status, 404);
    EXPECT_NE(text_at(response.body, "/error/message").find("/v1/chat/completions"), std::string::npos);
  }
  EXPECT_EQ(get("/health?verbose=1").status, 200);
}

// The page asks for nothing but its own parts, and everything that it asks for is there.
TEST_F(Http, ThePageComesWithItsParts) {
  start();
  const ClientResponse page = get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.header("content-type"), "text/html; charset=utf-8");
  for (const char* part : {"page/app.css", "page/app.js"}) {
    EXPECT_NE(page.body.find(part), std::string::npos) << part;
    EXPECT_EQ(get(std::string("/") + part).status, 200) << part;
  }
  const ClientResponse script = get("/page/app.js");
  EXPECT_EQ(script.header("content-type"), "text/javascript; charset=utf-8");
  for (const char* import : {"./api.js", "./chat.js", "./engine.js"}) {
    EXPECT_NE(script.body.find(import), std::string::npos) << import;
    EXPECT_EQ(get(std::string("/page/") + (import + 2)).status, 200) << import;
  }
  EXPECT_EQ(get("/page/other.js").status, 404);
  EXPECT_EQ(get("/page/../CMakeLists.txt").status, 404);
}

TEST_F(Http, RoutesAreDifferentAndDescribed) {
  std::set<std::string> seen;
  for (const Route* route : routes()) {
    EXPECT_TRUE(seen.insert(fmt::format("{} {}", route->method, route->path)).second) << route->path;
    EXPECT_NE(route->handle, nullptr) << route->path;
    EXPECT_FALSE(route->about.empty()) << route->path;
  }
}

TEST_F(Http, ModelsInfoAndText) {
  start();
  const ClientResponse models = get("/v1/models");
  EXPECT_EQ(text_at(models.body, "/data/0/id"), "pocket");
  EXPECT_EQ(at(models.body, "/data/0/max_model_len"), boost::json::value(2048));
  EXPECT_EQ(text_at(get("/v1/models/models%2Fpocket").body, "/id"), "models/pocket");
  EXPECT_EQ(get("/v1/models/other").status, 404);
  EXPECT_EQ(text_at(get("/server_info").body, "/settings/0/name"), "context");
  EXPECT_TRUE(at(get("/layers").body, "/places").as_array().empty());  // no step yet
  EXPECT_EQ(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1})").status, 200);
  const ClientResponse layers = get("/layers");
  EXPECT_EQ(text_at(layers.body, "/places/0/place"), "the embedding");
  EXPECT_GT(at(layers.body, "/places/1/rms_high").to_number<double>(), 0);

  const ClientResponse tokens = post("/tokenize", R"({"prompt":"a lantern <|user|>"})");
  const std::vector<TokenId> expected = must(tokenizer->encode("a lantern <|user|>"));
  EXPECT_EQ(at(tokens.body, "/tokens"), boost::json::value(boost::json::array(expected.begin(), expected.end())));
  const std::string ids = boost::json::serialize(at(tokens.body, "/tokens"));
  EXPECT_EQ(text_at(post("/detokenize", R"({"tokens":)" + ids + "}").body, "/prompt"), "a lantern <|user|>");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[4096]})").status, 400);
  const std::string chat = R"({"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"enable_thinking":false}})";
  EXPECT_EQ(text_at(post("/apply-template", chat).body, "/prompt"), "[gMASK]<sop><|user|>hi<|assistant|></think>");
  EXPECT_EQ(at(post("/tokenize", chat).body, "/count"),
            boost::json::value(must(tokenizer->encode("[gMASK]<sop><|user|>hi<|assistant|></think>")).size()));
  EXPECT_EQ(text_at(post("/flush_cache", "").body, "/status"), "flushed");
}

TEST_F(Http, MetricsCountWhatHappened) {
  start();
  EXPECT_EQ(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"max_tokens":3,"ignore_eos":true})").status, 200);
  EXPECT_EQ(post("/v1/chat/completions", "{}").status, 400);
  wait_until_idle();
  const std::string page = get("/metrics").body;
  for (const char* line :
       {"vllm:generation_tokens_total{model_name=\"pocket\"} 3\n", "vllm:num_requests_running{model_name=\"pocket\"} 0\n",
        "vllm:request_success_total{model_name=\"pocket\",finished_reason=\"length\"} 1\n",
        "reckoner:refused_total{model_name=\"pocket\",status=\"400\"} 1\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"pocket\"} 1\n",
        "vllm:inter_token_latency_seconds_count{model_name=\"pocket\"} 2\n", "reckoner:non_finite_rows_total{model_name=\"pocket\"} 0\n",
        "vllm:request_generation_tokens_bucket{model_name=\"pocket\",le=\"4\"} 1\n",
        "vllm:request_generation_tokens_bucket{model_name=\"pocket\",le=\"1\"} 0\n"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line << page;
  }
}

}  // namespace
}  // namespace reckoner
