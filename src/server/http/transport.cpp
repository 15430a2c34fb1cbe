#include "server/http/transport.h"

#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

namespace reckoner {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

void close_socket(tcp::socket& socket) {
  boost::system::error_code ignored;
  socket.close(ignored);
}

class PlainTransport : public Transport {
 public:
  explicit PlainTransport(tcp::socket socket) : socket_(std::move(socket)) {}
  void handshake(Done done) override { done({}, 0); }
  void read_some(asio::mutable_buffer buffer, Done done) override { socket_.async_read_some(buffer, std::move(done)); }
  void write(asio::const_buffer buffer, Done done) override { asio::async_write(socket_, buffer, std::move(done)); }
  void end_writing() override {
    boost::system::error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  void close() override { close_socket(socket_); }
  asio::any_io_executor executor() override { return socket_.get_executor(); }

 private:
  tcp::socket socket_;
};

class TlsTransport : public Transport {
 public:
  TlsTransport(tcp::socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}
  void handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, [done = std::move(done)](boost::system::error_code error) { done(error, 0); });
  }
  void read_some(asio::mutable_buffer buffer, Done done) override { stream_.async_read_some(buffer, std::move(done)); }
  void write(asio::const_buffer buffer, Done done) override { asio::async_write(stream_, buffer, std::move(done)); }
  // The close_notify of TLS would have to wait its turn; the end of the TCP stream says the same, and lengths are in the HTTP.
  void end_writing() override {
    boost::system::error_code ignored;
    stream_.next_layer().shutdown(tcp::socket::shutdown_send, ignored);
  }
  void close() override { close_socket(stream_.next_layer()); }
  asio::any_io_executor executor() override { return stream_.get_executor(); }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

}  // namespace

std::unique_ptr<Transport> plain_transport(tcp::socket socket) { return std::make_unique<PlainTransport>(std::move(socket)); }

std::unique_ptr<Transport> tls_transport(tcp::socket socket, asio::ssl::context& context) {
  return std::make_unique<TlsTransport>(std::move(socket), context);
}

}  // namespace reckoner
