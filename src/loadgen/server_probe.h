// What has to be known about the server before the load: its model, that it streams, how it counts tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "loadgen/dataset.h"
#include "loadgen/http_client.h"
#include "loadgen/options.h"
#include "loadgen/plan.h"

namespace reckoner::loadgen {

struct ServerFacts {
  std::string model;
  std::string version;  // what /server_info or /version says, if there is one
  ContinuousUsage usage = ContinuousUsage::on;
  bool counts_tokens = true;  // answers carry usage
  TokenScale scale;
};

// The model that requests name: the options', or the first one of /v1/models. Errors: the server cannot be reached, refuses the key, or
// lists no model.
Result<std::string> find_model(HttpClient& client, const LoadOptions& options);
// Sends two small requests, one after the other. Error: what a request of the load would have met.
Result<ServerFacts> probe_server(HttpClient& client, const LoadOptions& options);

}  // namespace reckoner::loadgen
