// A server that answers as the test says: well, badly, late or not at all.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace reckoner::loadgen {

struct FakeReply {
  std::vector<std::string> pieces;  // written one after the other
  enum class Then { keep, close, hang } then = Then::keep;
};

// The whole request, head and body.
using FakeScript = std::function<FakeReply(const std::string& request)>;

class FakeServer {
 public:
  explicit FakeServer(FakeScript script)
      : script_(std::move(script)), acceptor_(io_, {boost::asio::ip::address_v4::loopback(), 0}), thread_([this] {
          accept();
          io_.run();
        }) {}
  ~FakeServer() {
    io_.stop();
    thread_.join();
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()); }
  std::int64_t connections() const { return connections_; }
  std::int64_t requests() const { return requests_; }
  std::int64_t most_active() const { return most_active_; }

 private:
  struct Session : std::enable_shared_from_this<Session> {
    Session(FakeServer& owner, boost::asio::ip::tcp::socket taken) : server(owner), socket(std::move(taken)), timer(owner.io_) {}

    void read() {
      boost::asio::async_read_until(socket, boost::asio::dynamic_buffer(received), "\r\n\r\n",
                                    [self = shared_from_this()](boost::system::error_code error, std::size_t head) {
                                      if (!error) self->read_body(head);
                                    });
    }
    void read_body(std::size_t head) {
      const std::size_t at = received.find("Content-Length: ");
      const std::size_t length = at < head ? std::stoul(received.substr(at + 16)) : 0;
      const std::size_t total = head + length;
      const std::size_t missing = total - std::min(total, received.size());
      boost::asio::async_read(socket, boost::asio::dynamic_buffer(received), boost::asio::transfer_exactly(missing),
                              [self = shared_from_this(), total](boost::system::error_code error, std::size_t) {
                                if (!error) self->answer(total);
                              });
    }
    // A moment later, so that what should run at a time does.
    void answer(std::size_t total) {
      ++server.requests_;
      server.most_active_ = std::max<std::int64_t>(server.most_active_, ++server.active_);
      reply = server.script_(received.substr(0, total));
      received.erase(0, total);
      timer.expires_after(std::chrono::milliseconds(2));
      timer.async_wait([self = shared_from_this()](boost::system::error_code) { self->write(0); });
    }
    void write(std::size_t piece) {
      if (piece == reply.pieces.size()) {
        --server.active_;
        if (reply.then == FakeReply::Then::keep) read();
        if (reply.then == FakeReply::Then::hang) server.hanging_.push_back(shared_from_this());
        return;
      }
      boost::asio::async_write(socket, boost::asio::buffer(reply.pieces[piece]),
                               [self = shared_from_this(), piece](boost::system::error_code error, std::size_t) {
                                 if (!error) self->write(piece + 1);
                               });
    }

    FakeServer& server;
    boost::asio::ip::tcp::socket socket;
    boost::asio::steady_timer timer;
    std::string received;
    FakeReply reply;
  };

  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, boost::asio::ip::tcp::socket socket) {
      if (error) return;
      ++connections_;
      socket.set_option(boost::asio::ip::tcp::no_delay(true));
      std::make_shared<Session>(*this, std::move(socket))->read();
      accept();
    });
  }

  FakeScript script_;
  boost::asio::io_context io_{1};
  std::vector<std::shared_ptr<Session>> hanging_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::atomic<std::int64_t> connections_{0};
  std::atomic<std::int64_t> requests_{0};
  std::atomic<std::int64_t> most_active_{0};
  std::int64_t active_ = 0;
  std::thread thread_;
};

inline std::string chunk(const std::string& bytes) {
  char size[32];
  std::snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
  return size + bytes + "\r\n";
}

inline const std::string kStreamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

inline std::string token_event(int so_far) {
  return "data: {\"choices\":[{\"text\":\"w\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":" + std::to_string(so_far) + "}}\n\n";
}

// Three tokens, the second event cut within a chunk.
inline FakeReply good_reply() {
  const std::string second = token_event(2);
  return {.pieces = {kStreamHead, chunk(token_event(1)), chunk(second.substr(0, 9)), chunk(second.substr(9)), chunk(token_event(3)),
                     chunk("data: [DONE]\n\n"), "0\r\n\r\n"}};
}

inline FakeReply json_reply(int status, const std::string& body) {
  return {.pieces = {"HTTP/1.1 " + std::to_string(status) +
                     " X\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body}};
}

}  // namespace reckoner::loadgen
