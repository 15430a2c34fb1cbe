// Counters and histograms, printed as Prometheus reads them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine_thread.h"

namespace reckoner {

class Histogram {
 public:
  // Upper ends of the buckets, rising.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}
  void add(double value);
  // Takes over what was counted elsewhere, with the same bounds.
  void set(std::span<const std::int64_t> counts, double sum);
  // The lines of one metric; `labels` without braces.
  void print(std::string& out, std::string_view name, std::string_view labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;  // of each bucket alone; the last is above all bounds
  std::int64_t count_ = 0;
  double sum_ = 0;
};

// What a request that ended adds.
struct RequestFigures {
  std::string finish_reason;  // "stop", "length", "abort", "error"
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t output_tokens = 0;
  double first_token_s = 0;  // from its arrival to its first token
  double total_s = 0;
};

class Metrics {
 public:
  Metrics();
  void request_ended(const RequestFigures& figures);
  void refused(int status);
  // The time between two tokens of one request.
  void token_after(double seconds);
  // Prometheus' text format. `connections`: now.
  std::string print(std::string_view model, const EngineLoad& load) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> ended_;  // by finish reason
  std::map<int, std::int64_t> refused_;        // by HTTP status
  std::int64_t prompt_tokens_ = 0;
  std::int64_t cached_tokens_ = 0;
  std::int64_t output_tokens_ = 0;
  Histogram first_token_;
  Histogram between_tokens_;
  Histogram total_;
  Histogram prompt_length_;
  Histogram output_length_;
};

}  // namespace reckoner
