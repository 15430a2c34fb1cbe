// The pocket model behind a server of this process.
#pragma once

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/threads.h"
#include "client.h"
#include "model/loader.h"
#include "server/server.h"
#include "text/tokenizer.h"

namespace reckoner {

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(result).value();
}

struct TestOptions {
  HttpLimits limits = {};
  std::string api_key = {};
  std::string cors_origin = {};
  std::int64_t max_running = 16;
  std::int64_t max_queued = 64;
  std::int64_t context = 2048;
  std::string tls_certificate = {};
  std::string tls_key = {};
};

class ServerTest : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void start(const TestOptions& options = {});
  void TearDown() override { server.reset(); }

  // The answer to one request on a connection of its own.
  ClientResponse get(std::string_view path) { return Client(server->port()).get(path); }
  ClientResponse post(std::string_view path, std::string_view body) { return Client(server->port()).post(path, body); }
  // The server still answers.
  void expect_alive();
  // Returns when nothing runs and nothing waits.
  void wait_until_idle() const;
  void wait_until_running(std::int64_t count) const;

  static Model* model;
  static ThreadPool* pool;
  static Tokenizer* tokenizer;
  std::unique_ptr<Server> server;
};

// A value in a JSON text by its pointer: "/error/message".
boost::json::value at(const std::string& text, std::string_view pointer);
std::string text_at(const std::string& text, std::string_view pointer);

// A chat whose greedy answer is known; `more` fields begin with a comma.
inline constexpr const char* kLantern = "light in a transparent protective case";
std::string lantern(std::string_view more = "");

// A request that goes on for as long as it is let.
std::string long_request(std::string_view more = "");

}  // namespace reckoner
