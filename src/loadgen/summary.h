// Timelines become numbers. Definitions as vLLM's benchmark has them, so that results can be compared.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loadgen/options.h"
#include "loadgen/timeline.h"

namespace reckoner::loadgen {

// Of values in milliseconds; all 0 when there are none.
struct Statistics {
  std::int64_t count = 0;
  double mean = 0;
  double median = 0;
  double deviation = 0;                                // of the population
  std::vector<std::pair<double, double>> percentiles;  // percent, value; linear between the two nearest ranks
};
Statistics statistics(std::vector<double> values, const std::vector<double>& percentiles);
// `sorted` ascending, not empty.
double percentile(const std::vector<double>& sorted, double percent);

// Failures that read the same.
struct FailureGroup {
  Failure example;
  std::int64_t count = 0;
};

struct Summary {
  std::int64_t planned = 0;
  std::int64_t completed = 0;
  std::int64_t failed = 0;
  std::int64_t unfinished = 0;  // the load was interrupted before they were sent or answered
  double duration_s = 0;        // from the start to the end of the last request
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  bool tokens_counted = true;  // by the server, all of them
  double requests_per_s = 0;
  double good_requests_per_s = 0;
  std::int64_t good = 0;
  double output_tokens_per_s = 0;
  double total_tokens_per_s = 0;
  double peak_output_tokens_per_s = 0;  // in the best whole second
  std::int64_t peak_concurrency = 0;
  std::int64_t held_back = 0;  // by --max-concurrency
  double longest_hold_s = 0;
  Statistics input_lengths, output_lengths;  // tokens, not milliseconds
  std::array<Statistics, 4> latency;         // by Metric
  std::vector<FailureGroup> failures;        // most frequent first

  const Statistics& of(Metric metric) const { return latency[static_cast<std::size_t>(metric)]; }
};

// One value for each completed request, but ITL: one for each gap; TPOT: none for requests of one token.
std::vector<double> values_ms(const std::vector<Timeline>& timelines, Metric metric);
// 0 for a metric that the request has not.
double value_ms(const Timeline& timeline, Metric metric);

Summary summarise(const std::vector<Timeline>& timelines, const LoadOptions& options);

// Requests that were running, and tokens that came, in equal parts of the load.
struct Series {
  double step_s = 0;
  std::vector<double> running;  // on average within the step
  std::vector<double> output_tokens_per_s;
};
Series over_time(const std::vector<Timeline>& timelines, double duration_s, std::size_t steps);

std::string_view describe(FailureKind kind);  // "HTTP status", "stream cut off"

}  // namespace reckoner::loadgen
