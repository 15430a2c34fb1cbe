// Service: what the routes work with. One a server; everything in it may be used from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/settings.h"
#include "server/api_error.h"
#include "server/engine_thread.h"
#include "server/metrics.h"
#include "server/requests/options.h"
#include "text/grammar.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace reckoner {

struct ServiceSettings {
  std::vector<std::string> model_names;  // what clients may call the model; the first is shown
  std::string api_key;                   // empty: none is asked for
  std::string cors_origin;               // "*", or an origin; empty: no browser page of another origin may ask
  std::string version;
  std::vector<Setting> effective;  // for /server_info
};

struct Service {
  const Tokenizer& tokenizer;
  ServiceSettings settings;
  RequestLimits limits;
  std::vector<std::int32_t> end_tokens;  // any of these ends an answer
  OutputFormat output_format = OutputFormat::plain;
  Result<GrammarFactory> grammars;  // an error: why answers cannot be made to keep to a form
  EngineThread& engine;
  Metrics metrics = {};
  std::atomic<bool> draining{false};
  std::chrono::system_clock::time_point started = std::chrono::system_clock::now();

  // An empty name is any model.
  bool serves(const std::string& model) const;
  const std::string& model_name() const { return settings.model_names.front(); }
};

ApiError unknown_model(const Service& service, const std::string& model);

std::int64_t unix_seconds();
// "chatcmpl-" and 24 random hexadecimal digits.
std::string new_id(std::string_view prefix);

}  // namespace reckoner
