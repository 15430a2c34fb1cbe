#include <array>

#include "server/routes/routes.h"

namespace reckoner {

std::span<const Route* const> routes() {
  static constexpr std::array kRoutes = {&kChatCompletions, &kModels, &kModel, &kHealth, &kReady, &kMetrics, &kCompletions, &kTokenize, &kDetokenize, &kApplyTemplate, &kFlushCache, &kServerInfo};
  return kRoutes;
}

}  // namespace reckoner
