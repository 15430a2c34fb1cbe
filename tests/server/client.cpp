#include "client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <stdexcept>
#include <utility>

namespace reckoner {
namespace {

constexpr int kPatienceMs = 120'000;  // then something hangs

}  // namespace

std::string ClientResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Client::Client(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) throw std::runtime_error("cannot connect");
}

Client::~Client() { close(); }

void Client::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void Client::end_sending() { ::shutdown(socket_, SHUT_WR); }

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    pollfd one{.fd = socket_, .events = POLLOUT, .revents = 0};
    if (::poll(&one, 1, kPatienceMs) <= 0) throw std::runtime_error("the server takes nothing");
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool Client::read_more() {
  pollfd one{.fd = socket_, .events = POLLIN, .revents = 0};
  if (::poll(&one, 1, kPatienceMs) <= 0) throw std::runtime_error("the server sends nothing");
  char buffer[16384];
  const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
  if (count <= 0) return false;
  received_.append(buffer, static_cast<std::size_t>(count));
  return true;
}

bool Client::is_closed() { return received_.empty() && !read_more(); }

std::string Client::take_line() {
  std::size_t end = 0;
  while ((end = received_.find("\r\n")) == std::string::npos) {
    if (!read_more()) return "";
  }
  const std::string line = received_.substr(0, end);
  received_.erase(0, end + 2);
  return line;
}

std::string Client::take(std::size_t bytes, bool& complete) {
  while (received_.size() < bytes) {
    if (!read_more()) break;
  }
  complete = received_.size() >= bytes;
  const std::string result = received_.substr(0, bytes);
  received_.erase(0, bytes);
  return result;
}

std::string Client::take_chunks(bool& complete) {
  std::string body;
  while (true) {
    const std::string size_line = take_line();
    complete = false;
    if (size_line.empty()) return body;
    const std::size_t size = std::stoul(size_line, nullptr, 16);
    body += take(size, complete);
    if (!complete) return body;
    take_line();
    if (size == 0) return body;
  }
}

ClientResponse Client::receive(bool without_body) {
  ClientResponse response;
  std::string line = take_line();
  if (!line.starts_with("HTTP/1.1 ")) return response;
  response.status = std::stoi(line.substr(9, 3));
  while (!(line = take_line()).empty()) {
    std::string name = line.substr(0, line.find(':'));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    response.headers[name] = line.substr(std::min(line.size(), name.size() + 2));
  }
  response.complete = true;
  if (without_body || response.status == 100 || response.status == 204) return response;
  if (response.header("transfer-encoding") == "chunked") {
    response.body = take_chunks(response.complete);
  } else if (!response.header("content-length").empty()) {
    response.body = take(std::stoul(response.header("content-length")), response.complete);
  } else {
    while (read_more()) {}
    response.body = std::exchange(received_, {});
  }
  return response;
}

bool Client::receive_until(std::string_view text) {
  while (received_.find(text) == std::string::npos) {
    if (!read_more()) return false;
  }
  return true;
}

std::string post_text(std::string_view path, std::string_view body, std::string_view headers) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", path,
                     body.size(), headers, body);
}

ClientResponse Client::get(std::string_view path, std::string_view headers) {
  send(fmt::format("GET {} HTTP/1.1\r\nHost: test\r\n{}\r\n", path, headers));
  return receive();
}

ClientResponse Client::post(std::string_view path, std::string_view body, std::string_view headers) {
  send(post_text(path, body, headers));
  return receive();
}

std::vector<std::string> event_data(std::string_view stream) {
  std::vector<std::string> events;
  while (!stream.empty()) {
    const std::size_t end = stream.find("\n\n");
    std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end == std::string_view::npos ? stream.size() : end + 2);
    std::string data;
    while (!event.empty()) {
      const std::size_t line_end = std::min(event.find('\n'), event.size());
      const std::string_view line = event.substr(0, line_end);
      event.remove_prefix(std::min(event.size(), line_end + 1));
      if (line.starts_with("data: ")) data += (data.empty() ? "" : "\n") + std::string(line.substr(6));
    }
    events.push_back(data);
  }
  return events;
}

}  // namespace reckoner
