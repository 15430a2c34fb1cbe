// HttpClient: requests to one server over as many connections as run at a time, which are kept and used again. One thread, asynchronous.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "loadgen/http_connection.h"

namespace reckoner::loadgen {

struct HttpClientOptions {
  std::string api_key;
  double timeout_s = 600;
  bool trust_any_certificate = false;
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};

class HttpClient {
 public:
  // Looks the host up. Error: there is no such host.
  static Result<std::unique_ptr<HttpClient>> open(const Url& url, const HttpClientOptions& options);
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // `method` "GET" or "POST", `path` as "/v1/models". The events come while io() runs.
  void start(std::string_view method, std::string_view path, std::string_view body, const HttpEvents& events);
  // The same, waiting for the whole answer. Error: there is none, with what to do.
  Result<HttpAnswer> fetch(std::string_view method, std::string_view path, std::string_view body = {});
  // Ends what is pending.
  void interrupt();

  boost::asio::io_context& io() { return io_; }
  const Url& url() const { return peer_.url; }
  std::int64_t connections_opened() const { return connections_opened_; }

 private:
  HttpClient() = default;
  void run_exchange(const std::string& request, const HttpEvents& events);

  // Connections refer to the peer and are destroyed with the context's last handlers: the context goes first.
  HttpPeer peer_;
  std::string api_key_;
  boost::asio::io_context io_{1};
  std::vector<std::shared_ptr<HttpConnection>> idle_;
  std::vector<std::weak_ptr<HttpConnection>> connections_;
  std::int64_t connections_opened_ = 0;
};

// What to do about a server that could not be reached, or did not answer as it should.
Error unreachable(const Url& url, const Failure& failure);

}  // namespace reckoner::loadgen
