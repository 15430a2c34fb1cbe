// Exchange: one HTTP request and the means to answer it. What routes see of HTTP; no networking header is needed for it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reckoner {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // "/v1/models", still percent-encoded
  std::string query;   // what follows '?', if anything
  Headers headers;
  std::string body;

  // The value of the first header of that name (in any case), or empty.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  Headers headers = {};
};

// Every member may be called on the connection's strand only, which is where handlers and posted functions run. An exchange whose client
// has gone ignores what it is given.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  virtual ~Exchange() = default;

  const HttpRequest& request() const { return request_; }

  // Sends the whole answer; once.
  virtual void respond(HttpResponse response) = 0;
  // Or piece by piece: the header now, the body by write(), until end(). `response.body` must be empty.
  virtual void start(HttpResponse response) = 0;
  virtual void write(std::string_view piece) = 0;
  virtual void end() = 0;

  // Headers for whatever answer follows.
  void add_header(std::string name, std::string value) { extra_headers_.emplace_back(std::move(name), std::move(value)); }

  // `call` runs when the client goes away before the answer's end (at once, if it has).
  virtual void on_gone(std::function<void()> call) = 0;

  // From any thread: runs `call` on the strand.
  virtual void post(std::function<void()> call) = 0;

 protected:
  explicit Exchange(HttpRequest request) : request_(std::move(request)) {}

  HttpRequest request_;
  Headers extra_headers_;
};

using HttpHandler = std::function<void(const std::shared_ptr<Exchange>&)>;

}  // namespace reckoner
