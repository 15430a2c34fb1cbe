// The address of a server.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace reckoner::loadgen {

enum class Scheme { http, https };

struct Url {
  Scheme scheme = Scheme::http;
  std::string host;  // a name, or an address without the brackets of IPv6
  std::string port;
  std::string base_path;  // "" or "/gateway": what stands before "/v1/..."

  std::string text() const;         // "http://127.0.0.1:8000/gateway"
  std::string host_header() const;  // "127.0.0.1:8000"
};

// "http://host:port", "https://host/path", "host:port"; a "/v1" at its end is taken off.
Result<Url> parse_url(std::string_view text);

}  // namespace reckoner::loadgen
