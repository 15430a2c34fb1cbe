// Where the server listens and what it puts up with.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace reckoner {

struct HttpLimits {
  std::size_t max_header_bytes = std::size_t{32} << 10;
  std::size_t max_body_bytes = std::size_t{32} << 20;
  std::size_t max_connections = 1024;
  std::size_t max_unsent_bytes = std::size_t{8} << 20;  // of a streamed answer; a client that reads slower than that is given up
  std::chrono::milliseconds request_timeout{30'000};    // from a request's first byte to its last
  std::chrono::milliseconds idle_timeout{75'000};       // between requests
  std::chrono::milliseconds write_timeout{60'000};      // without one byte taken by the client
  std::chrono::milliseconds linger_timeout{2'000};      // for the client to read the last answer before the connection closes
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any that is free
  int threads = 4;
  HttpLimits limits = {};
  std::string tls_certificate = {};  // PEM files; empty: plain HTTP
  std::string tls_key = {};
};

}  // namespace reckoner
