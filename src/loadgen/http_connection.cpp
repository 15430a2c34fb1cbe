#include "loadgen/http_connection.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>

namespace reckoner::loadgen {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

constexpr std::uint32_t kMaxHeadBytes = 65536;
constexpr std::uint64_t kMaxBodyBytes = std::uint64_t{1} << 30;

bool is_address(const std::string& host) {
  boost::system::error_code error;
  asio::ip::make_address(host, error);
  return !error;
}

}  // namespace

HttpConnection::HttpConnection(asio::io_context& io, HttpPeer& peer) : peer_(peer) {
  if (peer.url.scheme == Scheme::http) {
    plain_.emplace(io);
  } else {
    tls_.emplace(Stream(io), peer.tls);
  }
}

void HttpConnection::exchange(std::string request, HttpEvents events) {
  request_ = std::move(request);
  events_ = std::move(events);
  answer_begun_ = head_given_ = reusable_ = false;
  begin_parser();
  connected_ ? send() : connect();
}

void HttpConnection::begin_parser() {
  parser_.emplace();
  parser_->eager(true);
  parser_->header_limit(kMaxHeadBytes);
  parser_->body_limit(kMaxBodyBytes);
}

void HttpConnection::connect() {
  tcp().expires_after(peer_.timeout);
  tcp().async_connect(peer_.addresses, [self = shared_from_this()](ErrorCode error, const asio::ip::tcp::endpoint&) {
    if (error) return self->fail(FailureKind::connect, "connecting", error);
    boost::system::error_code ignored;
    self->tcp().socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    self->tls_ ? self->handshake() : self->send();
  });
}

void HttpConnection::handshake() {
  const std::string& host = peer_.url.host;
  if (!is_address(host)) SSL_set_tlsext_host_name(tls_->native_handle(), host.c_str());
  if (SSL_get_verify_mode(tls_->native_handle()) != SSL_VERIFY_NONE) {
    ErrorCode ignored;
    tls_->set_verify_callback(asio::ssl::host_name_verification(host), ignored);
  }
  tls_->async_handshake(asio::ssl::stream_base::client, [self = shared_from_this()](ErrorCode error) {
    if (error) return self->fail(FailureKind::connect, "TLS handshake", error);
    self->send();
  });
}

void HttpConnection::send() {
  connected_ = true;
  tcp().expires_after(peer_.timeout);
  const auto done = [self = shared_from_this()](ErrorCode error, std::size_t) {
    if (!error) return self->receive();
    // The server may have answered and closed before it took everything: what it said is in the answer.
    if (error == asio::error::broken_pipe || error == asio::error::connection_reset) return self->receive();
    self->fail(FailureKind::cut, "sending the request", error);
  };
  if (tls_) {
    asio::async_write(*tls_, asio::buffer(request_), done);
  } else {
    asio::async_write(*plain_, asio::buffer(request_), done);
  }
}

void HttpConnection::receive() {
  tcp().expires_after(peer_.timeout);
  auto done = [self = shared_from_this()](ErrorCode error, std::size_t bytes) { self->on_received(error, bytes); };
  if (tls_) {
    tls_->async_read_some(asio::buffer(buffer_), std::move(done));
  } else {
    plain_->async_read_some(asio::buffer(buffer_), std::move(done));
  }
}

void HttpConnection::on_received(ErrorCode error, std::size_t bytes) {
  if (error == asio::error::eof || error == asio::ssl::error::stream_truncated) return on_closed();
  if (error) return fail(FailureKind::cut, "reading the answer", error);
  answer_begun_ = true;
  if (parse({buffer_.data(), bytes})) receive();
}

bool HttpConnection::parse(std::string_view bytes) {
  unparsed_ += bytes;
  std::size_t used = 0;
  while (used < unparsed_.size()) {
    ErrorCode error;
    const std::size_t count = parser_->put(asio::buffer(unparsed_.data() + used, unparsed_.size() - used), error);
    used += count;
    if (error && error != beast::http::error::need_more) {
      if (!hand_on()) return false;  // what was good before
      finish(ExchangeEnd::failed, {.kind = FailureKind::malformed, .message = "the answer is no HTTP: " + error.message()});
      return false;
    }
    if (!hand_on()) return false;
    if (parser_->is_done()) {
      reusable_ = parser_->keep_alive() && used == unparsed_.size();
      finish(ExchangeEnd::complete, {});
      return false;
    }
    if (error) break;
  }
  unparsed_.erase(0, used);
  return true;
}

// What the parser has of the head and the body so far; false when the exchange has ended.
bool HttpConnection::hand_on() {
  if (!parser_->is_header_done()) return true;
  if (!head_given_) {
    const int status = parser_->get().result_int();
    if (status < 200 && parser_->is_done()) return begin_parser(), true;  // "100 Continue" and its like: the answer follows
    head_given_ = true;
    const auto type = parser_->get()[beast::http::field::content_type];
    events_.head(status, {type.data(), type.size()});
  }
  std::string& body = parser_->get().body();
  if (body.empty()) return true;
  const std::string bytes = std::move(body);
  body.clear();
  if (events_.body(bytes)) return true;
  finish(ExchangeEnd::aborted, {});
  return false;
}

void HttpConnection::on_closed() {
  ErrorCode error;
  // A body may end with the connection.
  if (answer_begun_ && parser_->is_header_done()) parser_->put_eof(error);
  if (answer_begun_ && parser_->is_done() && !error) return finish(ExchangeEnd::complete, {});
  const std::string what =
      answer_begun_ ? "the server closed the connection within the answer" : "the server closed the connection without an answer";
  finish(answer_begun_ || !used_before_ ? ExchangeEnd::failed : ExchangeEnd::stale, {.kind = FailureKind::cut, .message = what});
}

void HttpConnection::fail(FailureKind kind, std::string_view doing, ErrorCode error) {
  if (error == beast::error::timeout) kind = FailureKind::timeout;
  const bool stale = connected_ && used_before_ && !answer_begun_ && kind == FailureKind::cut;
  const std::string text = error == beast::error::timeout ? "nothing came for too long (--timeout)" : error.message();
  finish(stale ? ExchangeEnd::stale : ExchangeEnd::failed, {.kind = kind, .message = fmt::format("{}: {}", doing, text)});
}

void HttpConnection::interrupt() {
  interrupted_ = true;
  tcp().close();
}

void HttpConnection::finish(ExchangeEnd end, const Failure& why) {
  used_before_ = true;
  unparsed_.clear();
  if (!reusable_) {
    boost::system::error_code ignored;
    tcp().socket().close(ignored);
  }
  tcp().expires_never();
  const HttpEvents events = std::move(events_);
  events_ = {};
  if (interrupted_ && end != ExchangeEnd::complete) {
    return events.end(ExchangeEnd::failed, {.kind = FailureKind::interrupted, .message = "stopped by us"});
  }
  events.end(end, why);
}

}  // namespace reckoner::loadgen
