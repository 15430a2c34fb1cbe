#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "server/routes/routes.h"

namespace reckoner {
namespace {

bool matches(const Route& route, std::string_view path) {
  if (route.path == path) return true;
  return route.path.size() > 1 && route.path.ends_with('/') && path.starts_with(route.path) && path.size() > route.path.size();
}

// The methods that are there for a path; empty: no such path.
std::vector<std::string_view> methods_of(std::string_view path) {
  std::vector<std::string_view> methods;
  for (const Route* route : routes()) {
    if (!matches(*route, path)) continue;
    methods.push_back(route->method);
    if (route->method == "GET") methods.push_back("HEAD");
  }
  if (!methods.empty()) methods.push_back("OPTIONS");
  return methods;
}

const Route* find_route(const HttpRequest& request) {
  const std::string_view method = request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
  const auto fits = [&](const Route* route) { return route->method == method && matches(*route, request.path); };
  const auto all = routes();
  const auto found = std::find_if(all.begin(), all.end(), fits);
  return found == all.end() ? nullptr : *found;
}

ApiError not_found(const HttpRequest& request) {
  std::vector<std::string_view> paths;
  for (const Route* route : routes()) paths.push_back(route->path);
  return {.status = 404,
          .message = fmt::format("there is no '{}' here; there is {}", request.path.substr(0, 200), fmt::join(paths, ", ")),
          .code = "path_not_found"};
}

HttpResponse wrong_method(const HttpRequest& request, const std::vector<std::string_view>& methods) {
  HttpResponse response = to_response(
      {.status = 405, .message = fmt::format("{} takes {}", request.path, fmt::join(methods, ", ")), .code = "method_not_allowed"});
  response.headers.emplace_back("Allow", fmt::format("{}", fmt::join(methods, ", ")));
  return response;
}

// Takes as long for a wrong key as for the right one, whatever they share.
bool same_key(std::string_view given, std::string_view expected) {
  unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = expected.empty() ? '\0' : expected[i % expected.size()];
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

bool has_key(const Service& service, const HttpRequest& request) {
  if (service.settings.api_key.empty()) return true;
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view authorization = request.header("Authorization");
  const std::string_view bearer = authorization.starts_with(kBearer) ? authorization.substr(kBearer.size()) : std::string_view();
  return same_key(bearer, service.settings.api_key) || same_key(request.header("x-api-key"), service.settings.api_key);
}

void add_cors(const Service& service, Exchange& exchange) {
  if (service.settings.cors_origin.empty()) return;
  exchange.add_header("Access-Control-Allow-Origin", service.settings.cors_origin);
  if (service.settings.cors_origin != "*") exchange.add_header("Vary", "Origin");
}

void answer_options(const Service& service, Exchange& exchange, const std::vector<std::string_view>& methods) {
  HttpResponse response{.status = 204, .content_type = ""};
  response.headers.emplace_back("Allow", fmt::format("{}", fmt::join(methods, ", ")));
  if (!service.settings.cors_origin.empty()) {
    response.headers.emplace_back("Access-Control-Allow-Methods", fmt::format("{}", fmt::join(methods, ", ")));
    const std::string asked(exchange.request().header("Access-Control-Request-Headers"));
    response.headers.emplace_back("Access-Control-Allow-Headers", asked.empty() ? "Authorization, Content-Type" : asked);
    response.headers.emplace_back("Access-Control-Max-Age", "86400");
  }
  exchange.respond(std::move(response));
}

void refuse(Service& service, Exchange& exchange, HttpResponse response) {
  service.metrics.refused(response.status);
  exchange.respond(std::move(response));
}

}  // namespace

void refuse(Service& service, Exchange& exchange, const ApiError& error) { refuse(service, exchange, to_response(error)); }

void route_request(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  add_cors(service, *exchange);
  const std::vector<std::string_view> methods = methods_of(request.path);
  if (methods.empty()) return refuse(service, *exchange, to_response(not_found(request)));
  if (request.method == "OPTIONS") return answer_options(service, *exchange, methods);
  const Route* const route = find_route(request);
  if (route == nullptr) return refuse(service, *exchange, wrong_method(request, methods));
  if (route->kind != RouteKind::open && !has_key(service, request)) {
    return refuse(service, *exchange,
                  to_response({.status = 401,
                               .message = "a key is needed; send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
                               .code = "invalid_api_key"}));
  }
  if (route->kind == RouteKind::work && service.draining) {
    return refuse(service, *exchange,
                  to_response({.status = 503,
                               .message = "this server is shutting down; ask another one, or try again later",
                               .code = "shutting_down",
                               .retry_after_s = 5}));
  }
  route->handle(service, exchange);
}

}  // namespace reckoner
