#include <array>

#include "server/routes/routes.h"

namespace reckoner {

std::span<const Route* const> routes() {
  static constexpr std::array kRoutes = {&kPage,      &kPagePart, &kChatCompletions, &kCompletions,  &kMessages,       &kCountTokens,
                                         &kResponses, &kModels,   &kModel,           &kTokenizeText, &kDetokenizeText, &kApplyTemplate,
                                         &kHealth,    &kReady,    &kMetrics,         &kServerInfo,   &kLayers,         &kFlushCache};
  return kRoutes;
}

}  // namespace reckoner
