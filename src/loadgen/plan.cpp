#include "loadgen/plan.h"

#include <boost/json.hpp>

#include "loadgen/arrivals.h"

namespace reckoner::loadgen {

namespace json = boost::json;

std::string request_body(const LoadOptions& options, const Sample& sample, ContinuousUsage usage) {
  json::object body;
  if (!options.model.empty()) body["model"] = options.model;
  if (options.api == Api::completions) {
    body["prompt"] = sample.prompt;
  } else if (!sample.messages_json.empty()) {
    body["messages"] = json::parse(sample.messages_json);
  } else {
    body["messages"] = json::array{json::object{{"role", "user"}, {"content", sample.prompt}}};
  }
  body["max_tokens"] = sample.max_tokens;
  if (options.temperature) body["temperature"] = *options.temperature;
  if (options.ignore_eos) body["ignore_eos"] = true;
  body["stream"] = true;
  json::object stream_options = {{"include_usage", true}};
  if (usage == ContinuousUsage::on) stream_options["continuous_usage_stats"] = true;
  body["stream_options"] = std::move(stream_options);
  return json::serialize(body);
}

std::vector<PlannedRequest> make_plan(const LoadOptions& options, const std::vector<Sample>& samples, ContinuousUsage usage) {
  const std::vector<double> times =
      arrival_times(static_cast<std::int64_t>(samples.size()), options.request_rate, options.burstiness, options.seed);
  std::vector<PlannedRequest> plan;
  plan.reserve(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    plan.push_back({.at_s = times[i], .body = request_body(options, samples[i], usage), .max_tokens = samples[i].max_tokens});
  }
  return plan;
}

}  // namespace reckoner::loadgen
