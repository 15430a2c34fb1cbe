// A client on a raw socket: it can send what no proper client would.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace reckoner {

struct ClientResponse {
  int status = 0;                              // 0: the connection closed without an answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete = false;                       // the body came to its end

  std::string header(const std::string& name) const;
};

class Client {
 public:
  explicit Client(std::uint16_t port);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False: the other side has closed.
  bool send(std::string_view bytes);
  // The next answer. `without_body`: as to a HEAD.
  ClientResponse receive(bool without_body = false);
  // Reads until `text` has come with the body; false when the connection ended before.
  bool receive_until(std::string_view text);
  // Whether the other side closes without sending anything more.
  bool is_closed();
  void end_sending();
  void close();

  ClientResponse get(std::string_view path, std::string_view headers = "");
  ClientResponse post(std::string_view path, std::string_view body, std::string_view headers = "");

 private:
  bool read_more();
  std::string take_line();
  std::string take(std::size_t bytes, bool& complete);
  std::string take_chunks(bool& complete);

  int socket_;
  std::string received_;
};

std::string post_text(std::string_view path, std::string_view body, std::string_view headers = "");

// The data of each event of a stream.
std::vector<std::string> event_data(std::string_view stream);

}  // namespace reckoner
