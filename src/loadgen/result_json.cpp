#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "loadgen/report.h"

namespace reckoner::loadgen {
namespace {

namespace json = boost::json;

void add_settings(const Report& report, json::object& object) {
  const LoadOptions& options = report.options;
  object["date"] = report.date;
  object["backend"] = options.api == Api::chat ? "openai-chat" : "openai";
  object["endpoint_type"] = object["backend"];
  object["label"] = nullptr;
  object["model_id"] = options.model;
  object["tokenizer_id"] = nullptr;  // tokens are what the server counts
  object["base_url"] = options.url;
  object["server_version"] = report.server.version;
  object["dataset_name"] = options.dataset == DatasetKind::random ? "random"
                           : options.dataset == DatasetKind::file ? "file"
                                                                  : "shared-prefix";
  object["num_prompts"] = report.summary.planned;
  object["request_rate"] = std::isinf(options.request_rate) ? json::value("inf") : json::value(options.request_rate);
  object["burstiness"] = options.burstiness;
  object["max_concurrency"] = options.max_concurrency > 0 ? json::value(options.max_concurrency) : json::value();
  object["seed"] = options.seed;
}

void add_totals(const Report& report, json::object& object) {
  const Summary& summary = report.summary;
  object["duration"] = summary.duration_s;
  object["completed"] = summary.completed;
  object["failed"] = summary.failed;
  object["unfinished"] = summary.unfinished;
  object["total_input_tokens"] = summary.input_tokens;
  object["total_output_tokens"] = summary.output_tokens;
  object["tokens_counted_by_server"] = summary.tokens_counted;
  object["request_throughput"] = summary.requests_per_s;
  object["request_goodput"] = report.options.goodput.empty() ? json::value() : json::value(summary.good_requests_per_s);
  object["output_throughput"] = summary.output_tokens_per_s;
  object["total_token_throughput"] = summary.total_tokens_per_s;
  object["max_output_tokens_per_s"] = summary.peak_output_tokens_per_s;
  object["max_concurrent_requests"] = summary.peak_concurrency;
  object["connections"] = report.result.connections;
}

void add_latencies(const Report& report, json::object& object) {
  for (const Metric metric : report.options.metrics) {
    const Statistics& values = report.summary.of(metric);
    const std::string suffix = fmt::format("_{}_ms", name(metric));
    object["mean" + suffix] = values.mean;
    object["median" + suffix] = values.median;
    object["std" + suffix] = values.deviation;
    for (const auto& [percent, value] : values.percentiles) object[percent_name(percent) + suffix] = value;
  }
}

// One entry a planned request in each list; what a failed one has not is 0.
void add_requests(const Report& report, Detail detail, json::object& object) {
  json::array input_lens, output_lens, ttfts, itls, start_times, latencies, texts, errors;
  for (const Timeline& timeline : report.result.timelines) {
    const bool ok = timeline.ok();
    input_lens.emplace_back(timeline.input_tokens);
    output_lens.emplace_back(ok ? timeline.output_tokens : 0);
    ttfts.emplace_back(ok ? value_ms(timeline, Metric::ttft) / 1e3 : 0.0);
    latencies.emplace_back(ok ? value_ms(timeline, Metric::e2el) / 1e3 : 0.0);
    start_times.emplace_back(timeline.start_s);
    json::array gaps;
    for (std::size_t i = 1; ok && i < timeline.chunks.size(); ++i) gaps.emplace_back(timeline.chunks[i].at_s - timeline.chunks[i - 1].at_s);
    itls.emplace_back(std::move(gaps));
    texts.emplace_back(timeline.text);
    errors.emplace_back(timeline.failure ? failure_text(*timeline.failure) : timeline.started ? std::string() : std::string("not sent"));
  }
  object["input_lens"] = std::move(input_lens);
  object["output_lens"] = std::move(output_lens);
  object["start_times"] = std::move(start_times);
  object["ttfts"] = std::move(ttfts);
  object["itls"] = std::move(itls);
  object["e2els"] = std::move(latencies);
  if (detail == Detail::texts) object["generated_texts"] = std::move(texts);
  object["errors"] = std::move(errors);
}

json::array failures(const Summary& summary) {
  json::array list;
  for (const FailureGroup& group : summary.failures) {
    list.push_back(json::object{{"kind", std::string(describe(group.example.kind))},
                                {"status", group.example.status},
                                {"message", group.example.message},
                                {"count", group.count}});
  }
  return list;
}

}  // namespace

std::string result_json(const Report& report, Detail detail) {
  json::object object;
  add_settings(report, object);
  add_totals(report, object);
  add_latencies(report, object);
  json::object goodput;
  for (const GoodputTarget& target : report.options.goodput) goodput[name(target.metric)] = target.at_most_ms;
  object["goodput_config_ms"] = std::move(goodput);
  object["failures"] = failures(report.summary);
  add_requests(report, detail, object);
  return json::serialize(object) + "\n";
}

}  // namespace reckoner::loadgen
