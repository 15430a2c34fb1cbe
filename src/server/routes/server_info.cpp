// GET /server_info: what took effect, and why. POST /flush_cache: forgets the cached prefixes.
#include <boost/json.hpp>

#include "server/routes/routes.h"

namespace reckoner {
namespace {

namespace json = boost::json;

json::object setting_object(const Setting& setting) {
  json::object object{{"name", setting.name}, {"value", setting.value}};
  if (!setting.source.empty()) object["source"] = setting.source;
  if (!setting.note.empty()) object["why"] = setting.note;
  return object;
}

void handle_info(Service& service, const std::shared_ptr<Exchange>& exchange) {
  json::array settings;
  for (const Setting& setting : service.settings.effective) settings.push_back(setting_object(setting));
  json::array paths;
  for (const Route* route : routes()) {
    paths.push_back(
        json::object{{"method", json::string(route->method)}, {"path", json::string(route->path)}, {"about", json::string(route->about)}});
  }
  const EngineLoad load = service.engine.load();
  exchange->respond({.body = json::serialize(json::object{{"version", service.settings.version},
                                                          {"model", service.model_name()},
                                                          {"max_model_len", service.limits.max_context},
                                                          {"running", load.running},
                                                          {"waiting", load.waiting},
                                                          {"draining", service.draining.load()},
                                                          {"settings", std::move(settings)},
                                                          {"routes", std::move(paths)}})});
}

void handle_flush(Service& service, const std::shared_ptr<Exchange>& exchange) {
  service.engine.flush_cache([exchange](std::int64_t freed_pages) {
    exchange->post([exchange, freed_pages] {
      exchange->respond({.body = json::serialize(json::object{{"status", "flushed"}, {"freed_pages", freed_pages}})});
    });
  });
}

}  // namespace

const Route kServerInfo = {
    .method = "GET", .path = "/server_info", .handle = handle_info, .about = "Says which settings took effect, and why"};
const Route kFlushCache = {.method = "POST", .path = "/flush_cache", .handle = handle_flush, .about = "Forgets the cached prefixes"};

}  // namespace reckoner
