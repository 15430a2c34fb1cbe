#include <fmt/format.h>

#include "loadgen/report.h"

namespace reckoner::loadgen {
namespace {

constexpr std::size_t kNameWidth = 22;

std::string line(std::string_view name, const std::string& value) { return fmt::format("  {:{}}  {}\n", name, kNameWidth, value); }

std::string lengths_text(const Statistics& lengths) {
  if (lengths.count == 0) return "";
  return fmt::format("  ({:.1f} a request, {:.0f} to {:.0f})", lengths.mean, lengths.percentiles.front().second,
                     lengths.percentiles.back().second);
}

std::string targets_text(const LoadOptions& options) {
  std::string text;
  for (const GoodputTarget& target : options.goodput) {
    text += fmt::format("{}{} <= {} ms", text.empty() ? "" : ", ", name(target.metric), target.at_most_ms);
  }
  return text;
}

std::string requests_text(const Report& report) {
  const Summary& summary = report.summary;
  std::string text = "\nRequests\n";
  text += line("completed", fmt::format("{} of {}", grouped_count(summary.completed), grouped_count(summary.planned)));
  if (summary.failed > 0) text += line("FAILED", grouped_count(summary.failed));
  if (summary.unfinished > 0) text += line("unfinished", grouped_count(summary.unfinished));
  text += line("duration", fmt::format("{:.2f} s", summary.duration_s));
  text += line("throughput", fmt::format("{:.2f} requests/s", summary.requests_per_s));
  if (!report.options.goodput.empty()) {
    text += line("goodput", fmt::format("{:.2f} requests/s  ({} of {} within {})", summary.good_requests_per_s, summary.good,
                                        summary.completed, targets_text(report.options)));
  }
  return text + line("peak concurrency", grouped_count(summary.peak_concurrency));
}

std::string tokens_text(const Summary& summary) {
  std::string text = "\nTokens\n";
  text += line("input", grouped_count(summary.input_tokens) + lengths_text(summary.input_lengths));
  text += line("output", grouped_count(summary.output_tokens) + lengths_text(summary.output_lengths));
  text += line("output throughput",
               fmt::format("{:.2f} tokens/s  (best second: {:.0f})", summary.output_tokens_per_s, summary.peak_output_tokens_per_s));
  return text + line("total throughput", fmt::format("{:.2f} tokens/s", summary.total_tokens_per_s));
}

std::string latency_text(const Report& report) {
  std::string text = fmt::format("\n{:{}}{:>10}{:>10}{:>10}", "Latency in ms", kNameWidth + 4, "mean", "median", "std");
  for (const double percent : report.options.percentiles) text += fmt::format("{:>10}", percent_name(percent));
  text += "\n";
  for (const Metric metric : report.options.metrics) {
    const Statistics& values = report.summary.of(metric);
    text += fmt::format("  {:{}}", title(metric), kNameWidth + 2);
    if (values.count == 0) {
      text += fmt::format("{:>10}\n", "-");
      continue;
    }
    text += fmt::format("{:10.2f}{:10.2f}{:10.2f}", values.mean, values.median, values.deviation);
    for (const auto& [percent, value] : values.percentiles) text += fmt::format("{:10.2f}", value);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string result_text(const Report& report) {
  const Summary& summary = report.summary;
  std::string text = "Load\n";
  for (const auto& [name, value] : load_settings(report)) text += line(name, value);
  text += requests_text(report) + tokens_text(summary) + latency_text(report);
  if (!summary.failures.empty()) {
    text += fmt::format("\nFailed: {} of {} requests\n", summary.failed, summary.planned);
    for (const FailureGroup& group : summary.failures) text += fmt::format("  {:>6} x  {}\n", group.count, failure_text(group.example));
  }
  for (const std::string& note : result_notes(report)) text += "\nNote: " + note + "\n";
  return text;
}

}  // namespace reckoner::loadgen
