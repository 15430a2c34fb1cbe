#include "server/http/connection.h"

#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <exception>
#include <utility>

namespace reckoner {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

// What is read ahead of a request that is being answered. Reading goes on only to notice that the client goes away.
constexpr std::size_t kMaxPipelinedBytes = std::size_t{64} << 10;

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

// Belongs to the routes; forgets its connection's later requests, and is forgotten by it when answered.
class ConnectionExchange : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, HttpRequest request)
      : Exchange(std::move(request)), connection_(std::move(connection)), number_(++connection_->exchange_number_) {}

  void respond(HttpResponse response) override {
    if (!is_current()) return;
    append_extra(response);
    connection_->respond(std::move(response));
  }
  void start(HttpResponse response) override {
    if (!is_current()) return;
    append_extra(response);
    connection_->start_stream(std::move(response));
  }
  void write(std::string_view piece) override {
    if (is_current()) connection_->write_piece(piece);
  }
  void end() override {
    if (is_current()) connection_->end_stream();
  }
  void on_gone(std::function<void()> call) override {
    if (connection_->exchange_number_ != number_ || connection_->phase_ == Connection::Phase::closed) return call();
    connection_->on_gone_ = std::move(call);
  }
  void post(std::function<void()> call) override { asio::post(connection_->transport_->executor(), std::move(call)); }

 private:
  bool is_current() const {
    return connection_->exchange_number_ == number_ && connection_->phase_ == Connection::Phase::answering && !connection_->answer_ended_;
  }
  void append_extra(HttpResponse& response) {
    for (auto& header : extra_headers_) response.headers.push_back(std::move(header));
    extra_headers_.clear();
  }

  std::shared_ptr<Connection> connection_;
  std::int64_t number_;
};

Connection::Connection(std::unique_ptr<Transport> transport, ConnectionContext& context)
    : transport_(std::move(transport)), context_(context), timer_(transport_->executor()) {
  ++context_.connections;
}

Connection::~Connection() {
  --context_.connections;
  const std::lock_guard lock(context_.mutex);
  context_.open.erase(this);
}

void Connection::enlist() {
  const std::lock_guard lock(context_.mutex);
  context_.open.emplace(this, weak_from_this());
}

void Connection::abandon() {
  asio::post(transport_->executor(), [self = shared_from_this()] {
    self->answer_ended_ = false;
    self->client_gone();
  });
}

void Connection::open() {
  arm(context_.limits.request_timeout);
  transport_->handshake([self = shared_from_this()](boost::system::error_code error, std::size_t) {
    if (error) return self->close();
    self->next_request();
  });
}

void Connection::refuse(const HttpResponse& response) {
  arm(context_.limits.request_timeout);
  transport_->handshake([self = shared_from_this(), response](boost::system::error_code error, std::size_t) {
    if (error) return self->close();
    self->client_keeps_alive_ = false;
    self->phase_ = Phase::answering;
    self->respond(response);
  });
}

// --- reading ------------------------------------------------------------------------------------------------------

void Connection::start_reading() {
  if (reading_ || phase_ == Phase::closed) return;
  if (phase_ == Phase::answering && received_.size() >= kMaxPipelinedBytes) return;
  reading_ = true;
  transport_->read_some(asio::buffer(read_buffer_), [self = shared_from_this()](boost::system::error_code error, std::size_t bytes) {
    self->reading_ = false;
    self->on_read(error, bytes);
  });
}

void Connection::on_read(boost::system::error_code error, std::size_t bytes) {
  if (phase_ == Phase::closed) return;
  if (error) return client_gone();
  if (phase_ != Phase::lingering) received_.append(read_buffer_.data(), bytes);
  if (phase_ == Phase::reading) parse();
  start_reading();
}

void Connection::begin_request() {
  parser_.emplace();
  parser_->eager(true);
  parser_->header_limit(static_cast<std::uint32_t>(context_.limits.max_header_bytes));
  parser_->body_limit(context_.limits.max_body_bytes);
  request_begun_ = false;
  expectation_answered_ = false;
}

// Some clients end a request with an empty line too many.
bool Connection::skip_empty_lines() {
  received_.erase(0, std::min(received_.find_first_not_of("\r\n"), received_.size()));
  return !received_.empty();
}

void Connection::parse() {
  if (!request_begun_) {
    if (!skip_empty_lines()) return;
    request_begun_ = true;
    arm(context_.limits.request_timeout);
  }
  boost::system::error_code error;
  while (!received_.empty() && !parser_->is_done()) {
    const std::size_t used = parser_->put(asio::buffer(received_), error);
    received_.erase(0, used);
    if (error || used == 0) break;
  }
  if (error == http::error::need_more) error = {};
  if (error == http::error::header_limit) return reject(431, "the request's header is too long; send fewer or shorter headers");
  if (error == http::error::body_limit)
    return reject(413, "the request's body is larger than this server takes; send less, or raise --max-body-mb");
  if (error == http::error::bad_version) return reject(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  if (error) return reject(400, "this is not a valid HTTP request: " + error.message());
  if (parser_->is_done()) return dispatch();
  // What the parser leaves is the beginning of a line; only an attack has one this long.
  if (received_.size() > context_.limits.max_header_bytes + read_buffer_.size()) return reject(431, "a line of the request is too long");
  answer_expectation();
}

void Connection::answer_expectation() {
  if (!parser_->is_header_done() || expectation_answered_) return;
  expectation_answered_ = true;
  if (boost::beast::iequals(parser_->get()[http::field::expect], "100-continue")) send("HTTP/1.1 100 Continue\r\n\r\n");
}

// What a request may not be, by HTTP's own rules.
bool Connection::refuse_request_head() {
  const auto& message = parser_->get();
  if (message.version() >= 11 && message.count(http::field::host) != 1) {
    reject(400, "expected exactly one Host header; add it");
    return true;
  }
  if (message.count(http::field::transfer_encoding) > 0 && message.count(http::field::content_length) > 0) {
    reject(400, "Content-Length and Transfer-Encoding exclude each other; send one of them");
    return true;
  }
  return false;
}

void Connection::dispatch() {
  if (refuse_request_head()) return;
  const bool keep_alive = parser_->keep_alive();
  auto message = parser_->release();
  HttpRequest request{.method = std::string(view(message.method_string())), .path = std::string(view(message.target()))};
  if (const std::size_t mark = request.path.find('?'); mark != std::string::npos) {
    request.query = request.path.substr(mark + 1);
    request.path.resize(mark);
  }
  for (const auto& field : message) request.headers.emplace_back(view(field.name_string()), view(field.value()));
  request.body = std::move(message.body());
  phase_ = Phase::answering;
  if (!std::exchange(counted_, true)) ++context_.exchanges;
  answer_ended_ = false;
  client_keeps_alive_ = keep_alive;
  head_only_ = request.method == "HEAD";
  body_end_ = message.version() >= 11 ? BodyEnd::chunks : BodyEnd::close;
  disarm();
  const auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), std::move(request));
  try {
    context_.handler(exchange);
  } catch (const std::exception& failure) { exchange->respond(plain_error(500, std::string("unexpected: ") + failure.what())); }
}

void Connection::reject(int status, std::string_view message) {
  client_keeps_alive_ = false;
  head_only_ = false;
  answer_ended_ = false;
  phase_ = Phase::answering;
  received_.clear();
  ++exchange_number_;
  respond(plain_error(status, message));
}

// --- writing ------------------------------------------------------------------------------------------------------

KeepAlive Connection::keep_alive() const { return client_keeps_alive_ && context_.keep_alive ? KeepAlive::yes : KeepAlive::no; }

void Connection::respond(HttpResponse response) {
  client_keeps_alive_ = keep_alive() == KeepAlive::yes;
  send(header_text(response, {}, keep_alive(), BodyEnd::length, response.body.size()));
  if (!head_only_) send(response.body);
  end_answer();
}

void Connection::start_stream(HttpResponse response) {
  if (body_end_ == BodyEnd::close) client_keeps_alive_ = false;
  client_keeps_alive_ = keep_alive() == KeepAlive::yes;
  send(header_text(response, {}, keep_alive(), body_end_, 0));
}

void Connection::write_piece(std::string_view piece) {
  if (piece.empty() || head_only_) return;
  if (body_end_ == BodyEnd::chunks) {
    send(chunk_text(piece));
  } else {
    send(piece);
  }
  if (unsent_.size() > context_.limits.max_unsent_bytes) client_gone();
}

void Connection::end_stream() {
  if (body_end_ == BodyEnd::chunks && !head_only_) send(kLastChunk);
  end_answer();
}

void Connection::end_answer() {
  answer_ended_ = true;
  on_gone_ = nullptr;
  flush();
  if (in_flight_.empty() && unsent_.empty()) next_request();
}

void Connection::send(std::string_view bytes) {
  unsent_ += bytes;
  flush();
}

void Connection::flush() {
  if (!in_flight_.empty() || unsent_.empty() || phase_ == Phase::closed) return;
  in_flight_ = std::move(unsent_);
  unsent_.clear();
  if (phase_ == Phase::answering) arm(context_.limits.write_timeout);
  transport_->write(asio::buffer(in_flight_),
                    [self = shared_from_this()](boost::system::error_code error, std::size_t) { self->on_written(error); });
}

void Connection::on_written(boost::system::error_code error) {
  in_flight_.clear();
  if (phase_ == Phase::closed) return;
  if (error) return client_gone();
  if (!unsent_.empty()) return flush();
  if (phase_ != Phase::answering) return;
  disarm();
  if (answer_ended_) next_request();
}

// --- from one request to the next, and to the end -----------------------------------------------------------------

void Connection::next_request() {
  if (phase_ == Phase::answering && !client_keeps_alive_) return linger();
  answered();
  phase_ = Phase::reading;
  begin_request();
  arm(context_.limits.idle_timeout);
  // Not at once: a client that sends thousands of requests in one piece must not nest as many calls.
  asio::post(transport_->executor(), [self = shared_from_this()] {
    if (self->phase_ == Phase::reading && !self->received_.empty()) self->parse();
    self->start_reading();
  });
}

// Closing while the client still sends would make its system drop the answer before it is read.
void Connection::linger() {
  phase_ = Phase::lingering;
  received_.clear();
  transport_->end_writing();
  arm(context_.limits.linger_timeout);
  start_reading();
}

void Connection::client_gone() {
  // All that is left is to send what is ready: a client may end its side when it has asked.
  if (phase_ == Phase::answering && answer_ended_ && !in_flight_.empty()) {
    client_keeps_alive_ = false;
    return;
  }
  const auto gone = std::exchange(on_gone_, nullptr);
  close();
  if (gone) gone();
}

void Connection::answered() {
  if (std::exchange(counted_, false)) --context_.exchanges;
}

void Connection::close() {
  answered();
  phase_ = Phase::closed;
  disarm();
  on_gone_ = nullptr;
  transport_->close();
}

void Connection::arm(std::chrono::milliseconds after) {
  timer_.expires_after(after);
  timer_.async_wait([self = shared_from_this(), alarm = ++alarm_](boost::system::error_code error) {
    if (!error && alarm == self->alarm_) self->on_alarm();
  });
}

void Connection::on_alarm() {
  if (phase_ == Phase::reading && request_begun_) return reject(408, "the request did not arrive in time; send it faster");
  answer_ended_ = false;  // a write that is stuck does not count as all that is left
  client_gone();
}

}  // namespace reckoner
