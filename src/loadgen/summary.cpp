#include "loadgen/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace reckoner::loadgen {
namespace {

bool is_good(const Timeline& timeline, const std::vector<GoodputTarget>& targets) {
  return std::all_of(targets.begin(), targets.end(),
                     [&](const GoodputTarget& target) { return value_ms(timeline, target.metric) <= target.at_most_ms; });
}

// Our doing, not the server's.
bool is_unfinished(const Timeline& timeline) {
  return !timeline.started || (timeline.failure && timeline.failure->kind == FailureKind::interrupted);
}

// Tokens of one chunk; spread evenly when the server only told their sum.
double tokens_of(const Timeline& timeline, const Chunk& chunk) {
  if (timeline.chunks.front().tokens > 0) return static_cast<double>(chunk.tokens);
  return static_cast<double>(timeline.output_tokens) / static_cast<double>(timeline.chunks.size());
}

std::int64_t peak_concurrency(const std::vector<Timeline>& timelines) {
  std::vector<std::pair<double, int>> changes;
  for (const Timeline& timeline : timelines) {
    if (!timeline.started) continue;
    changes.emplace_back(timeline.start_s, 1);
    changes.emplace_back(timeline.end_s, -1);
  }
  std::sort(changes.begin(), changes.end());  // at the same time, ends come first
  std::int64_t running = 0;
  std::int64_t peak = 0;
  for (const auto& [at_s, change] : changes) peak = std::max(peak, running += change);
  return peak;
}

double peak_tokens_per_s(const std::vector<Timeline>& timelines, double duration_s) {
  std::vector<double> seconds(static_cast<std::size_t>(std::max(0.0, duration_s)) + 1, 0.0);
  for (const Timeline& timeline : timelines) {
    if (!timeline.ok()) continue;
    for (const Chunk& chunk : timeline.chunks) {
      const auto second = static_cast<std::size_t>(std::max(0.0, chunk.at_s));
      seconds[std::min(second, seconds.size() - 1)] += tokens_of(timeline, chunk);
    }
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

std::vector<FailureGroup> group_failures(const std::vector<Timeline>& timelines) {
  std::map<std::tuple<FailureKind, int, std::string>, std::int64_t> counts;
  for (const Timeline& timeline : timelines) {
    if (timeline.failure && !is_unfinished(timeline))
      ++counts[{timeline.failure->kind, timeline.failure->status, timeline.failure->message}];
  }
  std::vector<FailureGroup> groups;
  for (const auto& [key, count] : counts) {
    const auto& [kind, status, message] = key;
    groups.push_back({.example = {.kind = kind, .status = status, .message = message}, .count = count});
  }
  std::stable_sort(groups.begin(), groups.end(), [](const FailureGroup& a, const FailureGroup& b) { return a.count > b.count; });
  return groups;
}

void add_completed(const Timeline& timeline, const LoadOptions& options, Summary& summary) {
  ++summary.completed;
  summary.input_tokens += timeline.input_tokens;
  summary.output_tokens += timeline.output_tokens;
  summary.tokens_counted = summary.tokens_counted && timeline.counted;
  if (is_good(timeline, options.goodput)) ++summary.good;
}

void add_request(const Timeline& timeline, const LoadOptions& options, Summary& summary) {
  if (timeline.started) summary.duration_s = std::max(summary.duration_s, timeline.end_s);
  if (timeline.started && timeline.start_s > timeline.arrival_s) {
    ++summary.held_back;
    summary.longest_hold_s = std::max(summary.longest_hold_s, timeline.start_s - timeline.arrival_s);
  }
  if (timeline.ok()) {
    add_completed(timeline, options, summary);
  } else {
    ++(is_unfinished(timeline) ? summary.unfinished : summary.failed);
  }
}

void add_rates(Summary& summary) {
  if (summary.duration_s <= 0) return;
  const auto per_second = [&](std::int64_t count) { return static_cast<double>(count) / summary.duration_s; };
  summary.requests_per_s = per_second(summary.completed);
  summary.good_requests_per_s = per_second(summary.good);
  summary.output_tokens_per_s = per_second(summary.output_tokens);
  summary.total_tokens_per_s = per_second(summary.input_tokens + summary.output_tokens);
}

}  // namespace

double percentile(const std::vector<double>& sorted, double percent) {
  CHECK(!sorted.empty() && percent >= 0 && percent <= 100);
  const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Statistics statistics(std::vector<double> values, const std::vector<double>& percentiles) {
  Statistics result{.count = static_cast<std::int64_t>(values.size())};
  std::sort(values.begin(), values.end());
  for (const double percent : percentiles) result.percentiles.emplace_back(percent, values.empty() ? 0 : percentile(values, percent));
  if (values.empty()) return result;
  const auto count = static_cast<double>(values.size());
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  result.median = percentile(values, 50);
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / count);
  return result;
}

double value_ms(const Timeline& timeline, Metric metric) {
  if (timeline.chunks.empty()) return 0;
  const double first_s = timeline.chunks.front().at_s;
  switch (metric) {
    case Metric::ttft:
      return 1e3 * (first_s - timeline.start_s);
    case Metric::tpot:
      return timeline.output_tokens > 1 ? 1e3 * (timeline.end_s - first_s) / static_cast<double>(timeline.output_tokens - 1) : 0;
    case Metric::itl: {
      const auto gaps = static_cast<double>(timeline.chunks.size() - 1);
      return gaps > 0 ? 1e3 * (timeline.chunks.back().at_s - first_s) / gaps : 0;
    }
    case Metric::e2el:
      break;
  }
  return 1e3 * (timeline.end_s - timeline.start_s);
}

std::vector<double> values_ms(const std::vector<Timeline>& timelines, Metric metric) {
  std::vector<double> values;
  for (const Timeline& timeline : timelines) {
    if (!timeline.ok()) continue;
    if (metric == Metric::itl) {
      for (std::size_t i = 1; i < timeline.chunks.size(); ++i) {
        values.push_back(1e3 * (timeline.chunks[i].at_s - timeline.chunks[i - 1].at_s));
      }
    } else if (metric != Metric::tpot || timeline.output_tokens > 1) {
      values.push_back(value_ms(timeline, metric));
    }
  }
  return values;
}

Summary summarise(const std::vector<Timeline>& timelines, const LoadOptions& options) {
  Summary summary{.planned = static_cast<std::int64_t>(timelines.size())};
  std::vector<double> inputs;
  std::vector<double> outputs;
  for (const Timeline& timeline : timelines) {
    add_request(timeline, options, summary);
    if (!timeline.ok()) continue;
    inputs.push_back(static_cast<double>(timeline.input_tokens));
    outputs.push_back(static_cast<double>(timeline.output_tokens));
  }
  add_rates(summary);
  summary.input_lengths = statistics(std::move(inputs), {0, 100});
  summary.output_lengths = statistics(std::move(outputs), {0, 100});
  for (const Metric metric : kMetrics) {
    summary.latency[static_cast<std::size_t>(metric)] = statistics(values_ms(timelines, metric), options.percentiles);
  }
  summary.peak_concurrency = peak_concurrency(timelines);
  summary.peak_output_tokens_per_s = peak_tokens_per_s(timelines, summary.duration_s);
  summary.failures = group_failures(timelines);
  return summary;
}

Series over_time(const std::vector<Timeline>& timelines, double duration_s, std::size_t steps) {
  CHECK(steps > 0);
  Series series{.step_s = duration_s / static_cast<double>(steps),
                .running = std::vector<double>(steps, 0.0),
                .output_tokens_per_s = std::vector<double>(steps, 0.0)};
  if (duration_s <= 0) return series;
  const auto step_at = [&](double at_s) { return std::min(static_cast<std::size_t>(std::max(0.0, at_s) / series.step_s), steps - 1); };
  for (const Timeline& timeline : timelines) {
    if (!timeline.started) continue;
    for (std::size_t step = step_at(timeline.start_s); step <= step_at(timeline.end_s); ++step) {
      const double from = std::max(timeline.start_s, static_cast<double>(step) * series.step_s);
      const double to = std::min(timeline.end_s, static_cast<double>(step + 1) * series.step_s);
      series.running[step] += std::max(0.0, to - from) / series.step_s;
    }
    for (const Chunk& chunk : timeline.chunks) {
      series.output_tokens_per_s[step_at(chunk.at_s)] += tokens_of(timeline, chunk) / series.step_s;
    }
  }
  return series;
}

std::string_view describe(FailureKind kind) {
  switch (kind) {
    case FailureKind::connect:
      return "no connection";
    case FailureKind::status:
      return "refused";
    case FailureKind::server:
      return "error in the stream";
    case FailureKind::cut:
      return "cut off";
    case FailureKind::malformed:
      return "not understood";
    case FailureKind::empty:
      return "no tokens";
    case FailureKind::timeout:
      return "timeout";
    case FailureKind::interrupted:
      break;
  }
  return "interrupted";
}

}  // namespace reckoner::loadgen
