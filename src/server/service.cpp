#include "server/service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>

namespace reckoner {

bool Service::serves(const std::string& model) const {
  const auto& names = settings.model_names;
  return model.empty() || std::find(names.begin(), names.end(), model) != names.end();
}

ApiError unknown_model(const Service& service, const std::string& model) {
  return {.status = 404,
          .message = fmt::format("there is no model '{}' here; use '{}'", model, fmt::join(service.settings.model_names, "' or '")),
          .param = "model",
          .code = "model_not_found"};
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string new_id(std::string_view prefix) {
  std::random_device random;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, random(), random(), random());
}

}  // namespace reckoner
