// GET /: the page to chat with the model and watch the engine. GET /page/NAME: its parts (web/).
#include <algorithm>

#include "server/page_files.h"
#include "server/routes/routes.h"

namespace reckoner {
namespace {

std::string_view content_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return "text/javascript; charset=utf-8";
}

void respond_with_file(Service& service, Exchange& exchange, std::string_view name) {
  const auto files = page_files();
  const auto found = std::find_if(files.begin(), files.end(), [&](const PageFile& file) { return file.name == name; });
  if (found == files.end()) {
    return refuse(service, exchange, {.status = 404, .message = "the page has no such part", .code = "path_not_found"});
  }
  HttpResponse response{.body = std::string(found->content), .content_type = std::string(content_type(name))};
  // Nothing but its own parts, and no other site may frame it: it holds a key and a conversation.
  response.headers.emplace_back("Content-Security-Policy", "default-src 'self'; img-src data:; frame-ancestors 'none'");
  response.headers.emplace_back("Cache-Control", "no-cache");
  exchange.respond(std::move(response));
}

void handle_page(Service& service, const std::shared_ptr<Exchange>& exchange) { respond_with_file(service, *exchange, "index.html"); }

void handle_part(Service& service, const std::shared_ptr<Exchange>& exchange) {
  respond_with_file(service, *exchange, std::string_view(exchange->request().path).substr(kPagePart.path.size()));
}

}  // namespace

const Route kPage = {
    .method = "GET", .path = "/", .kind = RouteKind::open, .handle = handle_page, .about = "A page to chat and to watch the engine"};
const Route kPagePart = {.method = "GET", .path = "/page/", .kind = RouteKind::open, .handle = handle_part, .about = "Its parts"};

}  // namespace reckoner
