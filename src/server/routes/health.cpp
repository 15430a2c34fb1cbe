// GET /health: the process lives and its device works. GET /ready: it takes work.
#include "server/routes/routes.h"

namespace reckoner {
namespace {

// A GPU that failed does not come back: whoever watches should start the process again.
bool refuse_failed(const Service& service, Exchange& exchange) {
  if (!service.engine.load().engine.device_failed) return false;
  exchange.respond({.status = 503, .body = R"({"status":"device failed"})"});
  return true;
}

void handle_health(Service& service, const std::shared_ptr<Exchange>& exchange) {
  if (!refuse_failed(service, *exchange)) exchange->respond({.body = R"({"status":"ok"})"});
}

void handle_ready(Service& service, const std::shared_ptr<Exchange>& exchange) {
  if (service.draining) return exchange->respond({.status = 503, .body = R"({"status":"draining"})"});
  if (!refuse_failed(service, *exchange)) exchange->respond({.body = R"({"status":"ready"})"});
}

}  // namespace

const Route kHealth = {.method = "GET",
                       .path = "/health",
                       .kind = RouteKind::open,
                       .handle = handle_health,
                       .about = "Says that the process lives and its device works"};
const Route kReady = {
    .method = "GET", .path = "/ready", .kind = RouteKind::open, .handle = handle_ready, .about = "Says whether it takes work"};

}  // namespace reckoner
