// What a load was and gave, for the three forms in which it is shown.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loadgen/load_run.h"
#include "loadgen/options.h"
#include "loadgen/server_probe.h"
#include "loadgen/summary.h"

namespace reckoner::loadgen {

struct Report {
  LoadOptions options;
  ServerFacts server;
  LoadResult result;
  Summary summary;
  std::string date;  // "20260131-093000"
};

enum class Detail { numbers, texts };

// One JSON object with the fields of vLLM's result files, and ours. Detail::texts adds what was answered.
std::string result_json(const Report& report, Detail detail);
// A table for a terminal.
std::string result_text(const Report& report);
// A page that needs nothing else.
std::string result_html(const Report& report);

// What was sent, by name, as the text and the page show it.
std::vector<std::pair<std::string, std::string>> load_settings(const Report& report);
// "HTTP 429, refused: too many requests"
std::string failure_text(const Failure& failure);
std::string percent_name(double percent);       // "p99.9"
std::string grouped_count(std::int64_t count);  // "12,345"
// "the latencies do not hold the waiting for --max-concurrency ..." and the like.
std::vector<std::string> result_notes(const Report& report);

}  // namespace reckoner::loadgen
