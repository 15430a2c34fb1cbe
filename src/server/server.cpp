#include "server/server.h"

#include "server/http/http_server.h"
#include "server/routes/routes.h"

namespace reckoner {

struct Server::State {
  State(const ServerOptions& options, const Tokenizer& tokenizer, std::unique_ptr<Engine> its_engine)
      : engine(std::move(its_engine), options.max_queued),
        service{.tokenizer = tokenizer,
                .settings = options.settings,
                .limits = options.limits,
                .end_tokens = options.end_tokens,
                .output_format = options.output_format,
                .grammars = GrammarFactory::create(tokenizer, options.end_tokens, options.limits.vocab),
                .engine = engine} {}
  // No request may be left in the engine, where it holds its connection, when the networking goes.
  ~State() {
    if (http) http->close();
    engine.stop();
  }

  std::unique_ptr<HttpServer> http;
  EngineThread engine;
  Service service;
};

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, const Tokenizer& tokenizer, std::unique_ptr<Engine> engine) {
  auto state = std::make_unique<State>(options, tokenizer, std::move(engine));
  Service& service = state->service;
  state->http =
      TRY(HttpServer::listen(options.http, [&service](const std::shared_ptr<Exchange>& exchange) { route_request(service, exchange); }));
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}
Server::~Server() = default;

std::uint16_t Server::port() const { return state_->http->port(); }
std::string Server::address() const { return state_->http->address(); }
EngineLoad Server::load() const { return state_->service.engine.load(); }
std::int64_t Server::unanswered() const { return state_->http->exchanges(); }

void Server::drain() {
  state_->service.draining = true;
  state_->http->stop_keeping_alive();
}

}  // namespace reckoner
