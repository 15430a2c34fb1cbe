// What `reckoner serve` does once its options are read.
#pragma once

#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/options.h"
#include "cli/subcommand.h"

namespace reckoner {

struct ServeOptions {
  std::string model;
  std::string host = "127.0.0.1";
  std::int64_t port = 8000;
  std::vector<std::string> model_names;
  std::string api_key;
  std::string cors_origin;
  std::string tls_certificate;
  std::string tls_key;
  std::int64_t max_sequences = 64;
  std::int64_t max_queue = 1024;
  std::int64_t max_connections = 4096;
  std::int64_t max_body_mb = 32;
  std::int64_t request_timeout_s = 30;
  std::int64_t write_timeout_s = 60;
  std::int64_t drain_timeout_s = 30;
  std::int64_t http_threads = 4;
  std::int64_t cache_tokens = 0;  // 0: chosen
  MachineOptions machine;
  LimitOptions limits;
  std::string trace_dir;   // of bundles; "off"
  std::string inject_nan;  // "KERNELS:POSITION:PLACE"
  bool quiet = false;
};

Result<int> serve(const ServeOptions& options, Console& console);

}  // namespace reckoner
