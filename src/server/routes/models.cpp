// GET /v1/models and GET /v1/models/NAME
#include <boost/json.hpp>

#include "server/routes/routes.h"

namespace reckoner {
namespace {

namespace json = boost::json;

json::object model_object(const Service& service, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", std::chrono::duration_cast<std::chrono::seconds>(service.started.time_since_epoch()).count()},
          {"owned_by", "reckoner"},
          {"max_model_len", service.limits.max_context}};
}

void handle_list(Service& service, const std::shared_ptr<Exchange>& exchange) {
  json::array data;
  for (const std::string& name : service.settings.model_names) data.push_back(model_object(service, name));
  exchange->respond({.body = json::serialize(json::object{{"object", "list"}, {"data", std::move(data)}})});
}

// Clients may write the slash of a repository's name as %2F.
std::string without_escapes(std::string text) {
  for (std::size_t at = 0; (at = text.find("%2", at)) != std::string::npos; ++at) {
    if (at + 2 < text.size() && (text[at + 2] == 'F' || text[at + 2] == 'f')) text.replace(at, 3, 1, '/');
  }
  return text;
}

void handle_one(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const std::string name = without_escapes(exchange->request().path.substr(kModel.path.size()));
  if (!service.serves(name)) return exchange->respond(to_response(unknown_model(service, name)));
  exchange->respond({.body = json::serialize(model_object(service, name))});
}

}  // namespace

const Route kModels = {.method = "GET", .path = "/v1/models", .handle = handle_list, .about = "Names the model"};
const Route kModel = {.method = "GET", .path = "/v1/models/", .handle = handle_one, .about = "The same of one name"};

}  // namespace reckoner
