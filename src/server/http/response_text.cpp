#include "server/http/response_text.h"

#include <fmt/format.h>

#include <boost/beast/http/status.hpp>

#include "server/api_error.h"

namespace reckoner {
namespace {

std::string_view reason(int status) {
  const auto text = boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(static_cast<unsigned>(status)));
  return {text.data(), text.size()};
}

// A line break in a value would let whoever chose the value write headers.
bool is_header_text(std::string_view text) { return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos; }

void append_headers(std::string& text, const Headers& headers) {
  for (const auto& [name, value] : headers) {
    if (is_header_text(name) && is_header_text(value)) text += fmt::format("{}: {}\r\n", name, value);
  }
}

}  // namespace

std::string header_text(const HttpResponse& response, const Headers& extra, KeepAlive keep_alive, BodyEnd end, std::size_t length) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason(response.status));
  if (!response.content_type.empty()) text += fmt::format("Content-Type: {}\r\n", response.content_type);
  append_headers(text, response.headers);
  append_headers(text, extra);
  if (end == BodyEnd::length && response.status != 204) text += fmt::format("Content-Length: {}\r\n", length);
  if (end == BodyEnd::chunks) text += "Transfer-Encoding: chunked\r\n";
  text += keep_alive == KeepAlive::yes ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return text;
}

std::string chunk_text(std::string_view piece) { return fmt::format("{:x}\r\n{}\r\n", piece.size(), piece); }

HttpResponse plain_error(int status, std::string_view message) { return to_response({.status = status, .message = std::string(message)}); }

}  // namespace reckoner
