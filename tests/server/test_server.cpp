#include "test_server.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "kernels/cpu/catalogue.h"

namespace reckoner {

Model* ServerTest::model = nullptr;
ThreadPool* ServerTest::pool = nullptr;
Tokenizer* ServerTest::tokenizer = nullptr;

void ServerTest::SetUpTestSuite() {
  constexpr const char* kFolder = "models/pocket";
  model = must(open_model(kFolder)).release();
  pool = new ThreadPool(2);
  const Status read = read_weights(*model, *pool, {});
  ASSERT_TRUE(read.ok()) << read.error().message();
  tokenizer = new Tokenizer(must(Tokenizer::load(kFolder)));
}

void ServerTest::TearDownTestSuite() {
  delete tokenizer;
  delete pool;
  delete model;
}

void ServerTest::start(const TestOptions& options) {
  const EngineLimits limits{.max_context = options.context,
                            .cache_tokens = options.context * 8,
                            .max_sequences = options.max_running,
                            .max_step_tokens = 256,
                            .prompt_logprob_rows = 16};
  auto engine = std::make_unique<Engine>(*model, cpu_catalogue(), detect_cpu(), *pool, Precision::fast, limits);
  ServerOptions server_options{
      .http = {.limits = options.limits, .tls_certificate = options.tls_certificate, .tls_key = options.tls_key},
      .settings = {.model_names = {"pocket", "models/pocket"},
                   .api_key = options.api_key,
                   .cors_origin = options.cors_origin,
                   .version = "test",
                   .effective = {{"context", "2048 tokens", "", "a test"}}},
      .limits = {.vocab = model->config.vocab_size, .max_context = options.context, .defaults = model->config.generation},
      .end_tokens = {},
      .max_queued = options.max_queued};
  server_options.output_format = output_format_for(model->config.model_type, "");
  for (const std::int64_t id : model->config.eos_token_ids) server_options.end_tokens.push_back(static_cast<std::int32_t>(id));
  server = must(Server::start(server_options, *tokenizer, std::move(engine)));
}

void ServerTest::expect_alive() {
  const ClientResponse response = get("/health");
  EXPECT_EQ(response.status, 200);
}

namespace {

template <class Condition>
void wait_for(Condition condition) {
  constexpr int kTries = 12'000;
  for (int i = 0; i < kTries; ++i) {
    if (condition()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw std::runtime_error("waited in vain");
}

}  // namespace

void ServerTest::wait_until_idle() const {
  wait_for([&] {
    const EngineLoad load = server->load();
    return load.running == 0 && load.waiting == 0;
  });
}

void ServerTest::wait_until_running(std::int64_t count) const {
  wait_for([&] { return server->load().running >= count; });
}

boost::json::value at(const std::string& text, std::string_view pointer) {
  boost::system::error_code error;
  const boost::json::value document = boost::json::parse(text, error);
  if (error) return boost::json::value(boost::json::string("not JSON: " + text));
  const boost::json::value* found = document.find_pointer({pointer.data(), pointer.size()}, error);
  return found == nullptr ? boost::json::value(nullptr) : *found;
}

std::string text_at(const std::string& text, std::string_view pointer) {
  const boost::json::value value = at(text, pointer);
  return value.is_string() ? std::string(value.get_string()) : boost::json::serialize(value);
}

std::string long_request(std::string_view more) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"Define lantern."}}],"ignore_eos":true,"max_tokens":1900{}}})", more);
}

std::string lantern(std::string_view more) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"Define lantern."}}],"temperature":0,)"
                     R"("chat_template_kwargs":{{"enable_thinking":false}}{}}})",
                     more);
}

}  // namespace reckoner
