// The load over real connections, against a server that does as it is told.
#include "loadgen/load_run.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <stdexcept>

#include "loadgen/bench.h"
#include "loadgen/fake_server_test_support.h"
#include "loadgen/report.h"
#include "loadgen/summary.h"

namespace reckoner::loadgen {
namespace {

std::unique_ptr<HttpClient> client_of(const std::string& url, const HttpClientOptions& options = {}) {
  Result<std::unique_ptr<HttpClient>> client = HttpClient::open(parse_url(url).value(), options);
  if (!client) throw std::runtime_error(client.error().message());
  return std::move(client).value();
}

std::vector<PlannedRequest> all_at_once(std::size_t count) { return std::vector<PlannedRequest>(count, {.body = "{}"}); }

std::vector<Timeline> run(FakeServer& server, std::size_t count, std::int64_t max_concurrency = 0) {
  const auto client = client_of(server.url());
  return run_load(*client, Api::completions, all_at_once(count), max_concurrency, {}).timelines;
}

void expect_all_fail(FakeServer& server, FailureKind kind, int status, const std::string& part) {
  const std::vector<Timeline> timelines = run(server, 3, 1);
  const Summary summary = summarise(timelines, {});
  EXPECT_EQ(summary.completed, 0);
  EXPECT_EQ(summary.failed, 3);
  ASSERT_EQ(summary.failures.size(), 1u);  // they read the same
  EXPECT_EQ(summary.failures[0].count, 3);
  EXPECT_EQ(summary.failures[0].example.kind, kind) << summary.failures[0].example.message;
  EXPECT_EQ(summary.failures[0].example.status, status);
  EXPECT_NE(summary.failures[0].example.message.find(part), std::string::npos) << summary.failures[0].example.message;
}

TEST(LoadRun, GoodAnswers) {
  FakeServer server([](const std::string& request) {
    EXPECT_TRUE(request.starts_with("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:")) << request;
    return good_reply();
  });
  const std::vector<Timeline> timelines = run(server, 20);
  const Summary summary = summarise(timelines, {});
  EXPECT_EQ(summary.completed, 20) << (summary.failures.empty() ? "" : failure_text(summary.failures[0].example));
  EXPECT_EQ(summary.output_tokens, 60);
  EXPECT_EQ(summary.input_tokens, 140);
  EXPECT_EQ(summary.of(Metric::itl).count, 40);
  EXPECT_EQ(summary.peak_concurrency, 20);
  for (const Timeline& timeline : timelines) {
    EXPECT_EQ(timeline.text, "www");
    EXPECT_EQ(timeline.start_s, 0);  // when it was due
    EXPECT_GT(timeline.chunks.front().at_s, 0);
    EXPECT_GE(timeline.end_s, timeline.chunks.back().at_s);
  }
}

TEST(LoadRun, ConnectionsAreUsedAgain) {
  FakeServer server([](const std::string&) { return good_reply(); });
  const auto client = client_of(server.url());
  const LoadResult result = run_load(*client, Api::completions, all_at_once(30), 3, {});
  EXPECT_EQ(summarise(result.timelines, {}).completed, 30);
  EXPECT_EQ(summarise(result.timelines, {}).peak_concurrency, 3);
  EXPECT_EQ(result.connections, 3);
  EXPECT_EQ(server.connections(), 3);
  EXPECT_EQ(server.most_active(), 3);
  for (std::size_t i = 3; i < 30; ++i) EXPECT_GT(result.timelines[i].start_s, 0) << i;  // held back until there was a place
}

TEST(LoadRun, ManyAtOnce) {
  FakeServer server([](const std::string&) { return good_reply(); });
  EXPECT_EQ(summarise(run(server, 1000), {}).completed, 1000);
}

// A server may close a connection that it kept: the request that meets this is sent again.
TEST(LoadRun, StaleConnection) {
  FakeServer server([](const std::string&) {
    FakeReply reply = good_reply();
    reply.then = FakeReply::Then::close;
    return reply;
  });
  const Summary summary = summarise(run(server, 6, 1), {});
  EXPECT_EQ(summary.completed, 6) << failure_text(summary.failures[0].example);
  EXPECT_EQ(server.connections(), 6);
}

TEST(LoadRun, ArrivalsAreKept) {
  FakeServer server([](const std::string&) { return good_reply(); });
  const auto client = client_of(server.url());
  std::vector<PlannedRequest> plan = all_at_once(3);
  plan[1].at_s = 0.05;
  plan[2].at_s = 0.1;
  const std::vector<Timeline> timelines = run_load(*client, Api::completions, plan, 0, {}).timelines;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(timelines[i].start_s, plan[i].at_s);
    EXPECT_GT(timelines[i].chunks.front().at_s, plan[i].at_s);
  }
}

TEST(LoadRun, Refusals) {
  FakeServer busy([](const std::string&) { return json_reply(429, R"({"error":{"message":"busy"}})"); });
  expect_all_fail(busy, FailureKind::status, 429, "busy");
  EXPECT_EQ(busy.connections(), 1);  // a refusal is a whole answer
  FakeServer broken([](const std::string&) { return json_reply(500, "oops"); });
  expect_all_fail(broken, FailureKind::status, 500, "oops");
  FakeServer other([](const std::string&) { return json_reply(200, R"({"choices":[]})"); });
  expect_all_fail(other, FailureKind::malformed, 200, "text/event-stream");
}

TEST(LoadRun, BadAnswers) {
  const auto server_of = [](std::vector<std::string> pieces) {
    return std::make_unique<FakeServer>([pieces](const std::string&) { return FakeReply{pieces, FakeReply::Then::close}; });
  };
  expect_all_fail(*server_of({kStreamHead, chunk(token_event(1))}), FailureKind::cut, 200, "closed the connection within");
  expect_all_fail(*server_of({kStreamHead, chunk(token_event(1)), "0\r\n\r\n"}), FailureKind::cut, 200, "without [DONE]");
  expect_all_fail(*server_of({kStreamHead, chunk("data: }{\n\n"), "0\r\n\r\n"}), FailureKind::malformed, 200, "no JSON");
  expect_all_fail(*server_of({kStreamHead, "zzz\r\n"}), FailureKind::malformed, 200, "no HTTP");
  expect_all_fail(*server_of({"SSH-2.0-nothing\r\n\r\n"}), FailureKind::malformed, 0, "no HTTP");
  expect_all_fail(*server_of({kStreamHead, chunk("data: [DONE]\n\n"), "0\r\n\r\n"}), FailureKind::empty, 200, "no token");
  expect_all_fail(*server_of({kStreamHead, chunk(token_event(1) + "data: {\"error\":{\"message\":\"bad row\"}}\n\n"), "0\r\n\r\n"}),
                  FailureKind::server, 200, "bad row");
  expect_all_fail(*server_of({}), FailureKind::cut, 0, "without an answer");
  // A body that ends with the connection, as HTTP/1.0 has it, is whole.
  const auto plain = server_of({"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + token_event(1) + "data: [DONE]\n\n"});
  EXPECT_EQ(summarise(run(*plain, 2), {}).completed, 2);
}

TEST(LoadRun, TimeoutAndOthersGoOn) {
  std::atomic<int> number{0};
  FakeServer server([&](const std::string&) {
    return number++ == 1 ? FakeReply{{kStreamHead, chunk(token_event(1))}, FakeReply::Then::hang} : good_reply();
  });
  const auto client = client_of(server.url(), {.timeout_s = 0.5});
  const Summary summary = summarise(run_load(*client, Api::chat, all_at_once(5), 1, {}).timelines, {});
  EXPECT_EQ(summary.completed, 4);
  ASSERT_EQ(summary.failures.size(), 1u);
  EXPECT_EQ(summary.failures[0].example.kind, FailureKind::timeout);
}

TEST(LoadRun, NoServer) {
  std::string url;
  {
    FakeServer gone([](const std::string&) { return good_reply(); });
    url = gone.url();
  }
  const auto client = client_of(url);
  const Summary summary = summarise(run_load(*client, Api::chat, all_at_once(2), 0, {}).timelines, {});
  ASSERT_EQ(summary.failures.size(), 1u);
  EXPECT_EQ(summary.failures[0].example.kind, FailureKind::connect);
  EXPECT_EQ(summary.failures[0].count, 2);
  const Result<Report> report = bench_server({.url = url}, {});
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().what.find(url), std::string::npos);
  EXPECT_NE(report.error().remedy.find("start the server"), std::string::npos);
}

TEST(LoadRun, Interrupted) {
  FakeServer server([](const std::string&) { return FakeReply{{kStreamHead, chunk(token_event(1))}, FakeReply::Then::hang}; });
  const auto client = client_of(server.url());
  int ticks = 0;
  const LoadHooks hooks = {.interrupted = [&] { return ++ticks > 2; }};
  const LoadResult result = run_load(*client, Api::chat, all_at_once(4), 3, hooks);
  EXPECT_TRUE(result.interrupted);
  const Summary summary = summarise(result.timelines, {});
  EXPECT_EQ(summary.unfinished, 4);
  EXPECT_EQ(summary.failed, 0);  // the server is not to blame
  EXPECT_EQ(result.timelines[0].failure->kind, FailureKind::interrupted);
  EXPECT_FALSE(result.timelines[3].started);
}

// A whole bench: the model is asked for, the key is sent, the scale is measured, a strict server gets no option that it does not know.
TEST(Bench, StrictServer) {
  std::atomic<int> refused{0};
  FakeServer server([&](const std::string& request) {
    EXPECT_NE(request.find("Authorization: Bearer secret\r\n"), std::string::npos);
    if (request.starts_with("GET /gate/v1/models")) return json_reply(200, R"({"data":[{"id":"the-model"}]})");
    if (request.starts_with("GET ")) return json_reply(404, "{}");
    EXPECT_NE(request.find("\"model\":\"the-model\""), std::string::npos);
    if (request.find("continuous_usage_stats") == std::string::npos) return good_reply();
    ++refused;
    return json_reply(400, R"({"error":{"message":"unknown field"}})");
  });
  LoadOptions options{.url = server.url() + "/gate/v1", .api_key = "secret", .num_prompts = 5, .warmups = 2};
  const Result<Report> report = bench_server(options, {});
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_EQ(report->summary.completed, 5);
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(report->options.model, "the-model");
}

TEST(Bench, FirstRequestTells) {
  FakeServer locked([](const std::string&) { return json_reply(401, R"({"error":{"message":"no key"}})"); });
  const Result<Report> unauthorised = bench_server({.url = locked.url()}, {});
  ASSERT_FALSE(unauthorised.ok());
  EXPECT_NE(unauthorised.error().remedy.find("--api-key"), std::string::npos);
  FakeServer small([](const std::string& request) {
    if (request.starts_with("GET ")) return json_reply(200, R"({"data":[{"id":"m"}]})");
    return json_reply(404, R"({"error":{"message":"no such path"}})");
  });
  const Result<Report> wrong = bench_server({.url = small.url()}, {});
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().what.find("404: no such path"), std::string::npos) << wrong.error().what;
}

// The reports of a load in which some requests failed, with text that could be mistaken for HTML.
TEST(Bench, Reports) {
  std::atomic<int> number{0};
  FakeServer server([&](const std::string& request) {
    if (request.starts_with("GET /v1/models")) return json_reply(200, R"({"data":[{"id":"<b>&'model"}]})");
    if (request.starts_with("GET ")) return json_reply(404, "{}");
    return number++ >= 6 ? json_reply(429, R"({"error":{"message":"<script>alert(1)</script>"}})") : good_reply();
  });
  LoadOptions options{.url = server.url(), .num_prompts = 6, .max_concurrency = 1};
  options.goodput = {{.metric = Metric::e2el, .at_most_ms = 1e6}};
  options.percentiles = {50, 99.9};
  const Result<Report> report = bench_server(options, {});
  ASSERT_TRUE(report.ok()) << report.error().message();
  // Two requests go before the load.
  EXPECT_EQ(report->summary.completed, 4);

  const boost::json::object json = boost::json::parse(result_json(*report, Detail::texts)).as_object();
  for (const char* field : {"date",
                            "endpoint_type",
                            "backend",
                            "model_id",
                            "num_prompts",
                            "request_rate",
                            "burstiness",
                            "max_concurrency",
                            "duration",
                            "completed",
                            "failed",
                            "total_input_tokens",
                            "total_output_tokens",
                            "request_throughput",
                            "request_goodput",
                            "output_throughput",
                            "total_token_throughput",
                            "mean_ttft_ms",
                            "median_tpot_ms",
                            "std_itl_ms",
                            "p50_e2el_ms",
                            "p99.9_ttft_ms",
                            "max_output_tokens_per_s",
                            "max_concurrent_requests"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  for (const char* field : {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors", "start_times"}) {
    EXPECT_EQ(json.at(field).as_array().size(), 6u) << field;
  }
  EXPECT_EQ(json.at("failed"), 2);
  EXPECT_EQ(json.at("request_rate"), "inf");
  EXPECT_EQ(json.at("errors").at(0), "");
  EXPECT_EQ(json.at("errors").at(5), "HTTP 429, refused: <script>alert(1)</script>");
  EXPECT_EQ(json.at("itls").at(0).as_array().size(), 2u);
  EXPECT_FALSE(boost::json::parse(result_json(*report, Detail::numbers)).as_object().contains("generated_texts"));

  const std::string html = result_html(*report);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("<b>&'"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(1)&lt;/script&gt;"), std::string::npos);
  EXPECT_NE(html.find("2 of 6 requests failed"), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);

  const std::string text = result_text(*report);
  EXPECT_NE(text.find("2 x  HTTP 429, refused"), std::string::npos) << text;
  EXPECT_NE(text.find("of the 4 completed requests only"), std::string::npos) << text;
}

TEST(Bench, NothingCompleted) {
  std::atomic<int> number{0};
  FakeServer server([&](const std::string& request) {
    if (request.starts_with("GET ")) return json_reply(200, R"({"data":[{"id":"m"}]})");
    return number++ >= 2 ? json_reply(500, "{}") : good_reply();
  });
  const Result<Report> report = bench_server({.url = server.url(), .num_prompts = 2}, {});
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_EQ(report->summary.completed, 0);
  EXPECT_NE(result_html(*report).find("2 of 2 requests failed"), std::string::npos);
  EXPECT_NE(result_text(*report).find("0 of 2"), std::string::npos);
  EXPECT_EQ(boost::json::parse(result_json(*report, Detail::numbers)).at("mean_ttft_ms"), 0.0);
}

}  // namespace
}  // namespace reckoner::loadgen
