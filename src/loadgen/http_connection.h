// HttpConnection: one connection to the server; sends a request, hands on the answer as it comes, and can do so again.
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "loadgen/timeline.h"
#include "loadgen/url.h"

namespace reckoner::loadgen {

enum class ExchangeEnd {
  complete,  // the whole answer came
  aborted,   // `body` wanted no more
  failed,
  stale,  // failed before a byte of the answer came, on a connection that was used before: worth another try
};

struct HttpEvents {
  std::function<void(int status, std::string_view content_type)> head;
  std::function<bool(std::string_view bytes)> body;  // false: enough
  std::function<void(ExchangeEnd end, const Failure& why)> end;
};

// What all connections to a server share.
struct HttpPeer {
  Url url;
  boost::asio::ip::tcp::resolver::results_type addresses;
  boost::asio::ssl::context tls{boost::asio::ssl::context::tls_client};
  std::chrono::nanoseconds timeout{};
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(boost::asio::io_context& io, HttpPeer& peer);

  // One at a time. Connects first when that has not been done. `request`: the bytes of the whole HTTP request.
  void exchange(std::string request, HttpEvents events);
  // Whether another exchange may follow the one that has ended.
  bool is_reusable() const { return reusable_; }
  // What is pending fails, as interrupted.
  void interrupt();

 private:
  using Stream = boost::beast::tcp_stream;
  using Parser = boost::beast::http::response_parser<boost::beast::http::string_body>;
  using ErrorCode = boost::system::error_code;

  Stream& tcp() { return tls_ ? tls_->next_layer() : *plain_; }
  void connect();
  void handshake();
  void send();
  void receive();
  void on_received(ErrorCode error, std::size_t bytes);
  // Parses what was received; false when the exchange has ended.
  bool parse(std::string_view bytes);
  void begin_parser();
  bool hand_on();
  void on_closed();
  void fail(FailureKind kind, std::string_view doing, ErrorCode error);
  void finish(ExchangeEnd end, const Failure& why);

  HttpPeer& peer_;
  std::optional<Stream> plain_;
  std::optional<boost::asio::ssl::stream<Stream>> tls_;
  std::string request_;
  HttpEvents events_;
  std::optional<Parser> parser_;
  std::array<char, 16384> buffer_;
  std::string unparsed_;
  bool connected_ = false;
  bool used_before_ = false;
  bool answer_begun_ = false;
  bool head_given_ = false;
  bool reusable_ = false;
  bool interrupted_ = false;
};

}  // namespace reckoner::loadgen
