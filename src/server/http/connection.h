// Connection: reads one request after the other from a client, answers each before the next, and notices when the client goes away.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/http/exchange.h"
#include "server/http/http_options.h"
#include "server/http/response_text.h"
#include "server/http/transport.h"

namespace reckoner {

class Connection;

// What all connections of a server share.
struct ConnectionContext {
  HttpLimits limits;
  HttpHandler handler;
  std::atomic<std::int64_t> connections{0};
  std::atomic<std::int64_t> exchanges{0};  // whose answers are not sent, or not known to be read
  std::atomic<bool> keep_alive{true};
  std::mutex mutex;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> open;  // guarded by the mutex
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::unique_ptr<Transport> transport, ConnectionContext& context);
  ~Connection();

  // Once, when it is in a shared pointer; then open() or refuse() on its strand.
  void enlist();
  void open();
  // Answers with this instead of reading anything.
  void refuse(const HttpResponse& response);
  // From any thread: ends the connection at once.
  void abandon();

 private:
  friend class ConnectionExchange;
  // reading: waits for a request or the rest of one. answering: a handler has it. lingering: all is sent, the client may still read.
  enum class Phase { reading, answering, lingering, closed };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // Reading.
  void start_reading();
  void on_read(boost::system::error_code error, std::size_t bytes);
  void begin_request();
  void parse();
  bool skip_empty_lines();
  void answer_expectation();
  void dispatch();
  bool refuse_request_head();
  void reject(int status, std::string_view message);

  // Writing.
  void respond(HttpResponse response);
  void start_stream(HttpResponse response);
  void write_piece(std::string_view piece);
  void end_stream();
  void end_answer();
  void send(std::string_view bytes);
  void flush();
  void on_written(boost::system::error_code error);
  KeepAlive keep_alive() const;

  // Ending.
  void next_request();
  void linger();
  void client_gone();
  void answered();
  void close();
  void arm(std::chrono::milliseconds after);
  void disarm() { timer_.cancel(), ++alarm_; }
  void on_alarm();

  std::unique_ptr<Transport> transport_;
  ConnectionContext& context_;
  boost::asio::steady_timer timer_;
  std::int64_t alarm_ = 0;  // numbers the settings of the timer: an old one that fires late is ignored
  Phase phase_ = Phase::reading;

  std::array<char, 16384> read_buffer_;
  bool reading_ = false;  // a read is pending
  std::string received_;  // not parsed yet
  std::optional<Parser> parser_;
  bool request_begun_ = false;
  bool expectation_answered_ = false;

  std::string unsent_;     // waits for the write in flight
  std::string in_flight_;  // what is being written; empty: nothing
  bool answer_ended_ = false;
  bool client_keeps_alive_ = true;
  bool head_only_ = false;  // HEAD: the body is left out
  BodyEnd body_end_ = BodyEnd::length;
  bool counted_ = false;              // among the exchanges whose answers are not sent
  std::int64_t exchange_number_ = 0;  // which exchange may answer
  std::function<void()> on_gone_;
};

}  // namespace reckoner
