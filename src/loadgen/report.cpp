#include "loadgen/report.h"

#include <fmt/format.h>

#include <cmath>

namespace reckoner::loadgen {
namespace {

// The server chose these names: nothing in them may reach a terminal as a command.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return text;
}

std::string dataset_text(const Report& report) {
  const LoadOptions& options = report.options;
  if (options.dataset == DatasetKind::file) return "file " + options.dataset_path;
  std::string text = fmt::format("{}, about {} tokens in, {} out", options.dataset == DatasetKind::random ? "random" : "shared-prefix",
                                 options.input_tokens, options.output_tokens);
  if (options.range_ratio > 0) text += fmt::format(", each +-{:.3g} %", 100 * options.range_ratio);
  if (options.dataset == DatasetKind::shared_prefix) {
    text += fmt::format("; {} prefixes of {} tokens before them", options.num_prefixes, options.prefix_tokens);
  }
  return text;
}

std::string rate_text(const LoadOptions& options) {
  if (std::isinf(options.request_rate)) return "all at once";
  const std::string rate = fmt::format("{:.6g} requests/s, ", options.request_rate);
  return rate + (options.burstiness == 1 ? "Poisson" : fmt::format("gamma with burstiness {:.6g}", options.burstiness));
}

}  // namespace

std::string percent_name(double percent) { return fmt::format("p{}", percent); }

std::string grouped_count(std::int64_t count) {
  std::string text = fmt::format("{}", count);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > (count < 0 ? 1 : 0); at -= 3) {
    text.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return text;
}

std::string failure_text(const Failure& failure) {
  const std::string status = failure.status != 0 && failure.status != 200 ? fmt::format("HTTP {}, ", failure.status) : "";
  return fmt::format("{}{}: {}", status, describe(failure.kind), failure.message);
}

std::vector<std::pair<std::string, std::string>> load_settings(const Report& report) {
  const LoadOptions& options = report.options;
  std::vector<std::pair<std::string, std::string>> settings = {
      {"server", options.url + (report.server.version.empty() ? "" : fmt::format(" (version {})", printable(report.server.version)))},
      {"model", printable(options.model)},
      {"endpoint", options.api == Api::chat ? "/v1/chat/completions" : "/v1/completions"},
      {"prompts", fmt::format("{}, {}", report.summary.planned, dataset_text(report))},
      {"arrivals", rate_text(options)},
      {"concurrency", options.max_concurrency > 0 ? fmt::format("at most {}", options.max_concurrency) : "no limit"},
      {"sampling", fmt::format("{}{}", options.temperature ? fmt::format("temperature {}", *options.temperature) : "the server's",
                               options.ignore_eos ? ", ignore_eos" : "")},
      {"seed", fmt::format("{}", options.seed)},
  };
  if (options.warmups > 0) settings.emplace_back("warm-up", fmt::format("{} requests before", options.warmups));
  return settings;
}

std::vector<std::string> result_notes(const Report& report) {
  const Summary& summary = report.summary;
  std::vector<std::string> notes;
  if (summary.failed > 0 || summary.unfinished > 0) {
    notes.push_back(fmt::format("all numbers are of the {} completed requests only", summary.completed));
  }
  if (summary.held_back > 0 && !std::isinf(report.options.request_rate)) {
    notes.push_back(fmt::format("{} requests waited for a place under the concurrency limit, {:.3g} s at most; latencies begin after that",
                                summary.held_back, summary.longest_hold_s));
  }
  if (summary.completed > 0 && !summary.tokens_counted) {
    notes.push_back("the server told no usage: each piece of a stream counts as one token, and prompts as none");
  }
  return notes;
}

}  // namespace reckoner::loadgen
