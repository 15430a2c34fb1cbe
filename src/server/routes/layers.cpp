// GET /layers: how large the values between the layers are, as the last step's norms saw them.
#include <boost/json.hpp>
#include <cmath>

#include "server/routes/routes.h"

namespace reckoner {
namespace {

namespace json = boost::json;

// JSON has no infinity.
json::value number(float value) { return std::isfinite(value) ? json::value(value) : json::value(nullptr); }

void handle_layers(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const EngineStats stats = service.engine.load().engine;
  json::array places;
  for (std::size_t place = 0; place < stats.rms.size(); ++place) {
    places.push_back(json::object{{"place", GuardPlace::name(static_cast<std::int32_t>(place))},
                                  {"rms_low", number(stats.rms[place].low)},
                                  {"rms_high", number(stats.rms[place].high)}});
  }
  exchange->respond(
      {.body = json::serialize(json::object{{"steps", stats.steps}, {"rows", stats.last_step_rows}, {"places", std::move(places)}})});
}

}  // namespace

const Route kLayers = {.method = "GET",
                       .path = "/layers",
                       .handle = handle_layers,
                       .about = "Says how large the values behind each layer were in the last step"};

}  // namespace reckoner
