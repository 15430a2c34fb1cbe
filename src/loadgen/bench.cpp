#include "loadgen/bench.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>

#include "loadgen/dataset.h"
#include "loadgen/http_client.h"
#include "loadgen/plan.h"
#include "loadgen/url.h"
#include "loadgen/words.h"

namespace reckoner::loadgen {
namespace {

constexpr std::int64_t kUsualPrompts = 100;

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:%Y%m%d-%H%M%S}", local);
}

// Prompts of their own, so that the load finds nothing of them in a cache.
LoadOptions warmup_options(const LoadOptions& options) {
  LoadOptions warmup = options;
  warmup.seed = mixed(options.seed, 1);
  return warmup;
}

Status warm_up(HttpClient& client, const LoadOptions& options, const ServerFacts& facts, const std::vector<Sample>& samples) {
  if (options.warmups == 0) return {};
  const bool from_file = options.dataset == DatasetKind::file;
  std::vector<PlannedRequest> plan = make_plan(
      options, from_file ? repeated(samples, options.warmups) : random_samples(warmup_options(options), options.warmups, facts.scale),
      facts.usage);
  for (PlannedRequest& request : plan) request.at_s = 0;
  const LoadResult result = run_load(client, options.api, plan, options.max_concurrency, {});
  for (const Timeline& timeline : result.timelines) {
    if (timeline.failure) {
      return Error{fmt::format("{}: a warm-up request failed: {}", client.url().text(), failure_text(*timeline.failure)),
                   "change what the message names, or leave out --num-warmups to see how the load itself fares"};
    }
  }
  return {};
}

}  // namespace

Result<Report> bench_server(LoadOptions options, const BenchHooks& hooks) {
  const Url url = TRY(parse_url(options.url));
  options.url = url.text();
  std::vector<Sample> samples;
  if (options.dataset == DatasetKind::file) samples = repeated(TRY(read_samples(options.dataset_path, options)), options.num_prompts);
  const std::unique_ptr<HttpClient> client = TRY(HttpClient::open(
      url, {.api_key = options.api_key, .timeout_s = options.timeout_s, .trust_any_certificate = options.trust_any_certificate}));
  options.model = TRY(find_model(*client, options));
  const ServerFacts facts = TRY(probe_server(*client, options));
  if (options.dataset != DatasetKind::file) {
    samples = random_samples(options, options.num_prompts > 0 ? options.num_prompts : kUsualPrompts, facts.scale);
  }
  if (options.warmups > 0) hooks.note(fmt::format("warming up with {} requests", options.warmups));
  TRY(warm_up(*client, options, facts, samples));
  hooks.note(fmt::format("sending {} requests to {}", samples.size(), options.url));
  Report report{.options = options, .server = facts};
  report.date = now_text();
  const std::vector<PlannedRequest> plan = make_plan(options, samples, facts.usage);
  report.result = run_load(*client, options.api, plan, options.max_concurrency, hooks.load);
  report.summary = summarise(report.result.timelines, options);
  return report;
}

}  // namespace reckoner::loadgen
