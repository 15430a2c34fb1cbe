// The load itself: sends what the plan says when it says so, and keeps what happened.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "loadgen/http_client.h"
#include "loadgen/options.h"
#include "loadgen/plan.h"
#include "loadgen/timeline.h"

namespace reckoner::loadgen {

struct LoadProgress {
  std::int64_t ended = 0;
  std::int64_t failed = 0;
  std::int64_t running = 0;
  std::int64_t total = 0;
};

struct LoadHooks {
  std::function<void(const LoadProgress&)> progress = [](const LoadProgress&) {};  // about ten times a second
  std::function<bool()> interrupted = [] { return false; };
};

struct LoadResult {
  std::vector<Timeline> timelines;  // one a planned request
  std::int64_t connections = 0;     // that were opened for them
  bool interrupted = false;
};

// `max_concurrency` 0: no limit. Returns when every request has ended.
LoadResult run_load(HttpClient& client, Api api, const std::vector<PlannedRequest>& plan, std::int64_t max_concurrency,
                    const LoadHooks& hooks);

}  // namespace reckoner::loadgen
