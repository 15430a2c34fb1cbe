#include "loadgen/http_client.h"

#include <fmt/format.h>

namespace reckoner::loadgen {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;

}  // namespace

Error unreachable(const Url& url, const Failure& failure) {
  const std::string what = fmt::format("{}: {}", url.text(), failure.message);
  if (failure.kind == FailureKind::connect) {
    return Error{what, url.scheme == Scheme::https ? "check the address, that it is a server for https, and its certificate (--insecure)"
                                                   : "start the server, or check host and port"};
  }
  return Error{what, "check that this is the address of an OpenAI-compatible server, and look at its log"};
}

Result<std::unique_ptr<HttpClient>> HttpClient::open(const Url& url, const HttpClientOptions& options) {
  std::unique_ptr<HttpClient> client(new HttpClient());
  client->peer_.url = url;
  client->peer_.timeout = std::chrono::nanoseconds(static_cast<std::int64_t>(options.timeout_s * 1e9));
  client->api_key_ = options.api_key;
  boost::system::error_code error;
  asio::ip::tcp::resolver resolver(client->io_);
  client->peer_.addresses = resolver.resolve(url.host, url.port, error);
  if (error) return Error{fmt::format("{}: there is no host '{}': {}", url.text(), url.host, error.message()), "check the address"};
  if (!options.trust_any_certificate) {
    client->peer_.tls.set_default_verify_paths(error);
    client->peer_.tls.set_verify_mode(asio::ssl::verify_peer, error);
  }
  return client;
}

void HttpClient::start(std::string_view method, std::string_view path, std::string_view body, const HttpEvents& events) {
  std::string request = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: reckoner-bench\r\n", method, peer_.url.base_path, path,
                                    peer_.url.host_header());
  if (!api_key_.empty()) request += fmt::format("Authorization: Bearer {}\r\n", api_key_);
  if (method == "POST") request += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  request += "\r\n";
  request += body;
  run_exchange(request, events);
}

void HttpClient::run_exchange(const std::string& request, const HttpEvents& events) {
  std::shared_ptr<HttpConnection> connection;
  if (idle_.empty()) {
    connection = std::make_shared<HttpConnection>(io_, peer_);
    std::erase_if(connections_, [](const std::weak_ptr<HttpConnection>& gone) { return gone.expired(); });
    connections_.push_back(connection);
    ++connections_opened_;
  } else {
    connection = std::move(idle_.back());
    idle_.pop_back();
  }
  HttpEvents watched = events;
  // A weak pointer: the connection holds the events.
  watched.end = [this, request, events, weak = std::weak_ptr(connection)](ExchangeEnd end, const Failure& why) {
    if (end == ExchangeEnd::stale) return run_exchange(request, events);
    const std::shared_ptr<HttpConnection> ended = weak.lock();
    if (ended && ended->is_reusable()) idle_.push_back(ended);
    events.end(end, why);
  };
  connection->exchange(request, std::move(watched));
}

Result<HttpAnswer> HttpClient::fetch(std::string_view method, std::string_view path, std::string_view body) {
  HttpAnswer answer;
  Failure failure;
  bool complete = false;
  HttpEvents events;
  events.head = [&](int status, std::string_view) { answer.status = status; };
  events.body = [&](std::string_view bytes) {
    answer.body += bytes;
    return answer.body.size() < kMaxAnswerBytes;
  };
  events.end = [&](ExchangeEnd end, const Failure& why) {
    complete = end == ExchangeEnd::complete;
    failure = why;
    if (end == ExchangeEnd::aborted) failure = {.kind = FailureKind::malformed, .message = fmt::format("{}: a huge answer", path)};
  };
  start(method, path, body, events);
  io_.restart();
  io_.run();
  if (!complete) return unreachable(peer_.url, failure);
  return answer;
}

void HttpClient::interrupt() {
  for (const std::weak_ptr<HttpConnection>& weak : connections_) {
    if (const std::shared_ptr<HttpConnection> connection = weak.lock()) connection->interrupt();
  }
}

}  // namespace reckoner::loadgen
