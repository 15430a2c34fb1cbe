// GET /health: the process lives. GET /ready: it takes work.
#include "server/routes/routes.h"

namespace reckoner {
namespace {

void handle_health(Service& /*service*/, const std::shared_ptr<Exchange>& exchange) { exchange->respond({.body = R"({"status":"ok"})"}); }

void handle_ready(Service& service, const std::shared_ptr<Exchange>& exchange) {
  if (service.draining) return exchange->respond({.status = 503, .body = R"({"status":"draining"})"});
  exchange->respond({.body = R"({"status":"ready"})"});
}

}  // namespace

const Route kHealth = {
    .method = "GET", .path = "/health", .kind = RouteKind::open, .handle = handle_health, .about = "Says that the process lives"};
const Route kReady = {
    .method = "GET", .path = "/ready", .kind = RouteKind::open, .handle = handle_ready, .about = "Says whether it takes work"};

}  // namespace reckoner
