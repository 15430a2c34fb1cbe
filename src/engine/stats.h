// EngineStats: what the engine is doing and has done: numbers, cheap to copy after every step.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace reckoner {

// Durations by size. counts[i] are those of at most kBounds_s[i] seconds (and above the bound before); the last ones are longer.
struct DurationHistogram {
  static constexpr std::array<double, 14> kBounds_s = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60};
  std::array<std::int64_t, kBounds_s.size() + 1> counts = {};
  double sum_s = 0;

  void add(double seconds) {
    std::size_t bucket = 0;
    while (bucket < kBounds_s.size() && seconds > kBounds_s[bucket]) ++bucket;
    ++counts[bucket];
    sum_s += seconds;
  }
};

// The smallest and largest of some values.
struct ValueRange {
  float low = 0;
  float high = 0;
};

struct EngineStats {
  // Now.
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t pages = 0;         // used + cached + free
  std::int64_t used_pages = 0;    // held by running sequences; one that several hold counts once
  std::int64_t cached_pages = 0;  // held by the prefix tree alone: given up when pages are needed
  std::int64_t free_pages = 0;
  std::int64_t last_step_rows = 0;  // tokens that the last step processed
  std::vector<ValueRange> rms;      // over the last step's rows: root mean square of the residual stream behind each GuardPlace
  bool device_failed = false;       // for good: every request ends with an error
  // Since the start.
  std::int64_t steps = 0;
  std::int64_t submitted = 0;
  std::int64_t finished = 0;  // not counting the failed and the cancelled ones
  std::int64_t failed = 0;
  std::int64_t cancelled = 0;
  std::int64_t preemptions = 0;
  std::int64_t prompt_tokens = 0;  // of requests that have had their first token
  std::int64_t cached_tokens = 0;  // of those: found in the cache
  std::int64_t generated_tokens = 0;
  std::int64_t computed_tokens = 0;  // rows of all steps, so recomputed ones count again
  std::int64_t non_finite_rows = 0;
  DurationHistogram step_times;
  DurationHistogram queue_times;  // from submit to the first admission
};

}  // namespace reckoner
