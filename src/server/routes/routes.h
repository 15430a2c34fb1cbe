// The list of routes. Each is defined in the file of its name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "server/service.h"

namespace reckoner {

enum class RouteKind : std::uint8_t {
  open,   // needs no key: for whoever watches over the server
  about,  // needs the key
  work,   // needs the key, and is refused while the server drains
};

struct Route {
  std::string_view method;
  std::string_view path;  // one that ends with '/' stands for all below it
  RouteKind kind = RouteKind::about;
  void (*handle)(Service& service, const std::shared_ptr<Exchange>& exchange) = nullptr;
  std::string_view about;  // one line
};

extern const Route kPage;
extern const Route kPagePart;
extern const Route kChatCompletions;
extern const Route kModels;
extern const Route kModel;
extern const Route kHealth;
extern const Route kReady;
extern const Route kMetrics;
extern const Route kMessages;
extern const Route kCountTokens;
extern const Route kResponses;
extern const Route kCompletions;
extern const Route kTokenizeText;
extern const Route kDetokenizeText;
extern const Route kApplyTemplate;
extern const Route kFlushCache;
extern const Route kServerInfo;
extern const Route kLayers;

std::span<const Route* const> routes();

// Answers with an error, and counts it.
void refuse(Service& service, Exchange& exchange, const ApiError& error);

// Answers a request: finds its route, checks the key, and adds what browsers of other origins need.
void route_request(Service& service, const std::shared_ptr<Exchange>& exchange);

}  // namespace reckoner
