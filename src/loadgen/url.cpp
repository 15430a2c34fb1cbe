#include "loadgen/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace reckoner::loadgen {
namespace {

constexpr const char* kRemedy = "write it as http://127.0.0.1:8000 or https://example.org";

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c < 0x7F && c != '"' && c != '<' && c != '>'; });
}

bool is_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port > 0 && port < 65536;
}

// "host", "host:port", "[::1]:port"; false when it is none of them.
bool read_authority(std::string_view text, Url& url) {
  std::string_view rest;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return false;
    url.host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
  } else {
    const std::size_t colon = std::min(text.find(':'), text.size());
    url.host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  if (url.host.empty() || url.host.find('@') != std::string::npos) return false;
  if (rest.empty()) return true;
  url.port = rest.substr(1);
  return rest.starts_with(':') && is_port(url.port);
}

std::string_view without_suffix(std::string_view text, std::string_view suffix) {
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return text;
}

}  // namespace

std::string Url::host_header() const {
  const std::string host_text = host.find(':') == std::string::npos ? host : "[" + host + "]";
  const std::string_view usual = scheme == Scheme::http ? "80" : "443";
  return port == usual ? host_text : host_text + ":" + port;
}

std::string Url::text() const { return fmt::format("{}://{}{}", scheme == Scheme::http ? "http" : "https", host_header(), base_path); }

Result<Url> parse_url(std::string_view text) {
  Url url;
  std::string_view rest = text;
  if (const std::size_t at = text.find("://"); at != std::string_view::npos) {
    const std::string_view scheme = text.substr(0, at);
    if (scheme != "http" && scheme != "https") {
      return Error{fmt::format("'{}': expected http:// or https://, found {}://", text, scheme), kRemedy};
    }
    if (scheme == "https") url.scheme = Scheme::https;
    rest.remove_prefix(at + 3);
  }
  url.port = url.scheme == Scheme::http ? "80" : "443";
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view path = without_suffix(rest.substr(slash), "/");
  path = without_suffix(without_suffix(path, "/v1"), "/");
  if (!is_plain(rest) || rest.find_first_of("?#") != std::string_view::npos || !read_authority(rest.substr(0, slash), url)) {
    return Error{fmt::format("'{}' is not the address of a server", text), kRemedy};
  }
  url.base_path = path;
  return url;
}

}  // namespace reckoner::loadgen
