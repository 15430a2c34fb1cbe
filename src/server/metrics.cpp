#include "server/metrics.h"

#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <numeric>

namespace reckoner {
namespace {

constexpr double kSeconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};
constexpr double kTokens[] = {1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144};

// A label's value, as the format wants it.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char character : text) {
    if (character == '\n') {
      result += "\\n";
      continue;
    }
    if (character == '"' || character == '\\') result += '\\';
    result += character;
  }
  return result;
}

class Page {
 public:
  explicit Page(std::string_view model) : labels_(fmt::format("model_name=\"{}\"", escaped(model))) {}

  void describe(std::string_view name, std::string_view type, std::string_view about) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, about, name, type);
  }
  void gauge(std::string_view name, std::string_view about, double value) {
    describe(name, "gauge", about);
    out += fmt::format("{}{{{}}} {}\n", name, labels_, value);
  }
  void counter(std::string_view name, std::string_view about, double value) {
    describe(name, "counter", about);
    out += fmt::format("{}{{{}}} {}\n", name, labels_, value);
  }
  template <class Key>
  void counters(std::string_view name, std::string_view about, std::string_view label, const std::map<Key, std::int64_t>& values) {
    describe(name, "counter", about);
    for (const auto& [key, value] : values) out += fmt::format("{}{{{},{}=\"{}\"}} {}\n", name, labels_, label, key, value);
  }
  void histogram(std::string_view name, std::string_view about, const Histogram& values) {
    describe(name, "histogram", about);
    values.print(out, name, labels_);
  }

  void histogram(std::string_view name, std::string_view about, const DurationHistogram& values) {
    Histogram same(DurationHistogram::kBounds_s);
    same.set(values.counts, values.sum_s);
    histogram(name, about, same);
  }

  std::string out;

 private:
  std::string labels_;
};

// 0 where the system does not say.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all_pages = 0;
  std::int64_t resident_pages = 0;
  if (!(file >> all_pages >> resident_pages)) return 0;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

void print_engine(Page& page, const EngineLoad& load) {
  page.gauge("vllm:num_requests_running", "Requests that are being answered.", static_cast<double>(load.running));
  page.gauge("vllm:num_requests_waiting", "Requests that wait to be answered.", static_cast<double>(load.waiting));
  const EngineStats& engine = load.engine;
  const double used = engine.pages == 0 ? 0 : static_cast<double>(engine.used_pages) / static_cast<double>(engine.pages);
  page.gauge("vllm:kv_cache_usage_perc", "Share of the KV cache that running requests hold; 1 is all of it.", used);
  page.gauge("vllm:gpu_cache_usage_perc", "The same, by its older name.", used);
  page.counter("vllm:num_preemptions_total", "Requests put back to wait because the cache was full.",
               static_cast<double>(engine.preemptions));
  page.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
               static_cast<double>(engine.prompt_tokens));
  page.counter("vllm:prefix_cache_hits_total", "Prompt tokens found there.", static_cast<double>(engine.cached_tokens));
  page.gauge("reckoner:cached_pages", "Pages that hold prefixes which nobody uses.", static_cast<double>(engine.cached_pages));
  page.counter("reckoner:steps_total", "Steps of the engine.", static_cast<double>(engine.steps));
  page.counter("reckoner:computed_tokens_total", "Tokens that steps computed, again after a preemption included.",
               static_cast<double>(engine.computed_tokens));
  page.gauge("reckoner:last_step_seconds", "How long the last step took.", load.last_step_s);
  page.gauge("reckoner:last_step_tokens", "Tokens that the last step computed.", static_cast<double>(engine.last_step_rows));
  page.histogram("reckoner:step_seconds", "How long steps take.", engine.step_times);
  page.histogram("vllm:request_queue_time_seconds", "How long requests wait before they are begun.", engine.queue_times);
  page.gauge("process_resident_memory_bytes", "Memory of the process.", static_cast<double>(resident_bytes()));
  page.counter("reckoner:non_finite_rows_total", "Rows with a value that is not finite; their requests ended.",
               static_cast<double>(engine.non_finite_rows));
}

}  // namespace

void Histogram::add(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<std::size_t>(bucket)];
  ++count_;
  sum_ += value;
}

void Histogram::set(std::span<const std::int64_t> counts, double sum) {
  counts_.assign(counts.begin(), counts.end());
  count_ = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  sum_ = sum;
}

void Histogram::print(std::string& out, std::string_view name, std::string_view labels) const {
  std::int64_t below = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bounds_[i], below);
  }
  out += fmt::format("{}_bucket{{{},le=\"+Inf\"}} {}\n", name, labels, count_);
  out += fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, count_);
}

Metrics::Metrics()
    : first_token_(kSeconds), between_tokens_(kSeconds), total_(kSeconds), prompt_length_(kTokens), output_length_(kTokens) {}

void Metrics::request_ended(const RequestFigures& figures) {
  const std::lock_guard lock(mutex_);
  ++ended_[figures.finish_reason];
  prompt_tokens_ += figures.prompt_tokens;
  cached_tokens_ += figures.cached_tokens;
  output_tokens_ += figures.output_tokens;
  prompt_length_.add(static_cast<double>(figures.prompt_tokens));
  output_length_.add(static_cast<double>(figures.output_tokens));
  if (figures.output_tokens > 0) first_token_.add(figures.first_token_s);
  total_.add(figures.total_s);
}

void Metrics::refused(int status) {
  const std::lock_guard lock(mutex_);
  ++refused_[status];
}

void Metrics::token_after(double seconds) {
  const std::lock_guard lock(mutex_);
  between_tokens_.add(seconds);
}

std::string Metrics::print(std::string_view model, const EngineLoad& load) const {
  Page page(model);
  print_engine(page, load);
  const std::lock_guard lock(mutex_);
  page.counters("vllm:request_success_total", "Requests that ended, by why.", "finished_reason", ended_);
  page.counters("reckoner:refused_total", "Requests that were refused, by HTTP status.", "status", refused_);
  page.counter("vllm:prompt_tokens_total", "Prompt tokens of the requests that ended.", static_cast<double>(prompt_tokens_));
  page.counter("vllm:generation_tokens_total", "Output tokens of the requests that ended.", static_cast<double>(output_tokens_));
  page.counter("reckoner:cached_tokens_total", "Prompt tokens found in the prefix cache.", static_cast<double>(cached_tokens_));
  page.histogram("vllm:time_to_first_token_seconds", "From a request's arrival to its first token.", first_token_);
  page.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request.", between_tokens_);
  page.histogram("vllm:e2e_request_latency_seconds", "From a request's arrival to its end.", total_);
  page.histogram("vllm:request_prompt_tokens", "Tokens of a prompt.", prompt_length_);
  page.histogram("vllm:request_generation_tokens", "Tokens of an answer.", output_length_);
  return page.out;
}

}  // namespace reckoner
