// Transport: the bytes of one connection, plain or TLS. Handlers run on the transport's executor, a strand.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>

namespace reckoner {

class Transport {
 public:
  using Done = std::function<void(boost::system::error_code, std::size_t)>;

  virtual ~Transport() = default;
  // Before anything else; plain connections are done at once.
  virtual void handshake(Done done) = 0;
  virtual void read_some(boost::asio::mutable_buffer buffer, Done done) = 0;
  virtual void write(boost::asio::const_buffer buffer, Done done) = 0;
  // No more will be written.
  virtual void end_writing() = 0;
  // What is pending ends with an error.
  virtual void close() = 0;
  virtual boost::asio::any_io_executor executor() = 0;
};

std::unique_ptr<Transport> plain_transport(boost::asio::ip::tcp::socket socket);
std::unique_ptr<Transport> tls_transport(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context& context);

}  // namespace reckoner
