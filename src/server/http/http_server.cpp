#include "server/http/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/string.hpp>
#include <thread>
#include <vector>

#include "server/http/connection.h"

namespace reckoner {
namespace asio = boost::asio;
using asio::ip::tcp;

std::string_view HttpRequest::header(std::string_view name) const {
  const auto same = [&](const auto& header) { return boost::beast::iequals(header.first, name); };
  const auto found = std::find_if(headers.begin(), headers.end(), same);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

struct HttpServer::State {
  explicit State(const HttpOptions& its_options) : options(its_options), strand(asio::make_strand(io)), acceptor(strand), retry(strand) {}

  Status open();
  Status use_certificate();
  void accept();
  void take(tcp::socket socket);
  void close();

  HttpOptions options;
  ConnectionContext context;
  asio::io_context io;
  asio::strand<asio::io_context::executor_type> strand;
  std::unique_ptr<asio::ssl::context> tls;
  tcp::acceptor acceptor;  // on a strand, with `retry`
  std::uint16_t port = 0;
  std::atomic<bool> closing{false};
  asio::steady_timer retry;
  std::vector<std::thread> threads;
};

Status HttpServer::State::open() {
  boost::system::error_code error;
  const std::string what = fmt::format("cannot listen on {} port {}", options.host, options.port);
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) return Error{fmt::format("{}: {}", what, error.message()), "give --host an address of this machine"};
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return Error{fmt::format("{}: {}", what, error.message()), "choose another --port (0: any that is free), or end what uses it"};
  return {};
}

Status HttpServer::State::use_certificate() {
  if (options.tls_certificate.empty() && options.tls_key.empty()) return {};
  if (options.tls_certificate.empty() || options.tls_key.empty())
    return Error{"TLS needs a certificate and its key", "give both --tls-cert and --tls-key"};
  tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  boost::system::error_code error;
  tls->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, error);
  if (!error) tls->use_certificate_chain_file(options.tls_certificate, error);
  if (error) return Error{fmt::format("{}: {}", options.tls_certificate, error.message()), "--tls-cert takes a certificate chain in PEM"};
  tls->use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  if (error) return Error{fmt::format("{}: {}", options.tls_key, error.message()), "--tls-key takes the certificate's private key in PEM"};
  return {};
}

void HttpServer::State::accept() {
  acceptor.async_accept(asio::make_strand(io), [this](boost::system::error_code error, tcp::socket socket) {
    if (closing) return;
    if (!error) {
      take(std::move(socket));
      return accept();
    }
    // Out of file descriptors, most likely: some will be closed soon.
    retry.expires_after(std::chrono::milliseconds(100));
    retry.async_wait([this](boost::system::error_code cancelled) {
      if (!cancelled && !closing) accept();
    });
  });
}

void HttpServer::State::take(tcp::socket socket) {
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  auto transport = tls ? tls_transport(std::move(socket), *tls) : plain_transport(std::move(socket));
  const asio::any_io_executor executor = transport->executor();
  const auto connection = std::make_shared<Connection>(std::move(transport), context);
  connection->enlist();
  const bool too_many = context.connections > static_cast<std::int64_t>(options.limits.max_connections);
  asio::post(executor, [connection, too_many] {
    if (!too_many) return connection->open();
    HttpResponse full = plain_error(503, "this server has as many connections as it takes; close some, or try again later");
    full.headers.emplace_back("Retry-After", "1");
    connection->refuse(full);
  });
}

// Nothing is left to wait for then, and the threads end by themselves.
void HttpServer::State::close() {
  closing = true;
  asio::post(strand, [this] {
    boost::system::error_code ignored;
    acceptor.close(ignored);
    retry.cancel();
  });
  std::vector<std::shared_ptr<Connection>> connections;
  {
    const std::lock_guard lock(context.mutex);
    for (const auto& [key, weak] : context.open) {
      if (auto connection = weak.lock()) connections.push_back(std::move(connection));
    }
  }
  for (const auto& connection : connections) connection->abandon();
  connections.clear();
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options, HttpHandler handler) {
  auto state = std::make_unique<State>(options);
  state->context.limits = options.limits;
  state->context.handler = std::move(handler);
  TRY(state->use_certificate());
  TRY(state->open());
  state->port = state->acceptor.local_endpoint().port();
  state->accept();
  for (int i = 0; i < options.threads; ++i) state->threads.emplace_back([raw = state.get()] { raw->io.run(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() { close(); }

void HttpServer::close() { state_->close(); }

std::uint16_t HttpServer::port() const { return state_->port; }

std::string HttpServer::address() const {
  const bool is_v6 = state_->options.host.find(':') != std::string::npos;
  return fmt::format("{}://{}:{}", state_->tls ? "https" : "http", is_v6 ? fmt::format("[{}]", state_->options.host) : state_->options.host,
                     port());
}

std::int64_t HttpServer::connections() const { return state_->context.connections; }
std::int64_t HttpServer::exchanges() const { return state_->context.exchanges; }
void HttpServer::stop_keeping_alive() { state_->context.keep_alive = false; }

}  // namespace reckoner
