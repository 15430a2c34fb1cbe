// What is wrong with a request, in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>

#include "base/result.h"
#include "server/http/exchange.h"

namespace reckoner {

struct ApiError {
  int status = 400;
  std::string message = {};  // with what to change
  std::string param = {};    // the field; empty: null
  std::string code = {};     // empty: null
  int retry_after_s = 0;     // > 0: as a Retry-After header

  // "invalid_request_error" and the like, by the status.
  std::string type() const;
};

// The 400 of a request that was not understood. A field that the error's text names becomes `param`.
ApiError to_api_error(const Error& error, int status = 400);

std::string error_json(const ApiError& error);
HttpResponse to_response(const ApiError& error);

}  // namespace reckoner
