// Server: a model behind HTTP. Starts, drains and stops what the other files of this folder make.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "server/http/http_options.h"
#include "server/service.h"

namespace reckoner {

struct ServerOptions {
  HttpOptions http;
  ServiceSettings settings;
  RequestLimits limits;
  std::vector<std::int32_t> end_tokens;
  OutputFormat output_format = OutputFormat::plain;
  std::int64_t max_queued = 0;  // requests that wait beside those that the engine runs
};

class Server {
 public:
  // Answers requests as soon as it is made. `tokenizer` must outlive it. Errors: as HttpServer::listen.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options, const Tokenizer& tokenizer, std::unique_ptr<Engine> engine);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  std::string address() const;
  EngineLoad load() const;
  // Refuses new work with 503 from now on.
  void drain();
  // Requests that are not answered to the end.
  std::int64_t unanswered() const;

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace reckoner
