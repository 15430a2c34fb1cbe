// HttpServer: listens, reads requests and hands each to a handler, on a few threads of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http/exchange.h"
#include "server/http/http_options.h"

namespace reckoner {

class HttpServer {
 public:
  // Listens at once; requests are answered from now on. Errors: the address cannot be had, a TLS file cannot be used.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpOptions& options, HttpHandler handler);
  // Closes.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The one chosen, when 0 was asked for.
  std::uint16_t port() const;
  // "http://127.0.0.1:8000"
  std::string address() const;
  std::int64_t connections() const;
  // Requests whose answers are not sent to the end.
  std::int64_t exchanges() const;
  // From now on every answer ends its connection.
  void stop_keeping_alive();
  // Ends every connection and joins the threads. Exchanges that others still hold must go before this object does.
  void close();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace reckoner
