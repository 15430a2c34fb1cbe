// GET /metrics
#include "server/metrics.h"

#include "server/routes/routes.h"

namespace reckoner {
namespace {

void handle_metrics(Service& service, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({.body = service.metrics.print(service.model_name(), service.engine.load()),
                     .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

}  // namespace

const Route kMetrics = {
    .method = "GET", .path = "/metrics", .kind = RouteKind::open, .handle = handle_metrics, .about = "Numbers for Prometheus"};

}  // namespace reckoner
