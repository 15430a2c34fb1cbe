#include "server/api_error.h"

#include <boost/json.hpp>

namespace reckoner {
namespace {

namespace json = boost::json;

json::value text_or_null(const std::string& text) { return text.empty() ? json::value(nullptr) : json::value(json::string(text)); }

// The path in "request body: field 'messages[0].role': ...", as base/json.h writes its errors.
std::string named_field(const std::string& what) {
  constexpr std::string_view kBefore = "request body: field '";
  if (!what.starts_with(kBefore)) return "";
  return what.substr(kBefore.size(), what.find("':", kBefore.size()) - kBefore.size());
}

}  // namespace

std::string ApiError::type() const {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

ApiError to_api_error(const Error& error, int status) {
  return {
      .status = status, .message = error.remedy.empty() ? error.what : error.what + "; " + error.remedy, .param = named_field(error.what)};
}

std::string error_json(const ApiError& error) {
  return json::serialize(json::object{
      {"error",
       json::object{
           {"message", error.message}, {"type", error.type()}, {"param", text_or_null(error.param)}, {"code", text_or_null(error.code)}}}});
}

HttpResponse to_response(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = error_json(error)};
  if (error.retry_after_s > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace reckoner
