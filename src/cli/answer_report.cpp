#include "cli/answer_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "cli/text_format.h"
#include "kernels/cpu/machine/machine.h"

namespace reckoner {
namespace {

namespace json = boost::json;

constexpr std::size_t kTokensWorthMeasuring = 16;

// Boost.JSON writes 1.0 as 1E0; whole numbers read better.
json::value number(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? json::value(whole) : json::value(value);
}

json::object sampling_json(const SamplingParams& params) {
  json::object bias;
  for (const auto& [id, value] : params.logit_bias) bias[std::to_string(id)] = number(value);
  return {{"greedy", params.temperature == 0},
          {"temperature", number(params.temperature)},
          {"top_k", params.top_k},
          {"top_p", number(params.top_p)},
          {"min_p", number(params.min_p)},
          {"repetition_penalty", number(params.repetition_penalty)},
          {"presence_penalty", number(params.presence_penalty)},
          {"frequency_penalty", number(params.frequency_penalty)},
          {"logit_bias", bias}};
}

// The kernels that a decode step runs: {"linear": ["linear.nvfp4.avx512"], ...}.
json::object kernels_json(Engine& engine, std::int64_t context) {
  std::set<std::pair<std::string_view, std::string_view>> used;
  for (const Ops::Call& call : engine.runner().plan(1, context)) used.emplace(call.op, call.kernel);
  json::object kernels;
  for (const auto& [op, kernel] : used) {
    json::value& names = kernels[op];
    if (!names.is_array()) names = json::array();
    names.as_array().push_back(json::value(kernel));
  }
  return kernels;
}

json::value bandwidth_json(const Speed& speed) {
  if (speed.bytes_per_s == 0) return nullptr;
  return json::object{{"decode_bytes_per_s", speed.bytes_per_s},
                      {"machine_bytes_per_s", speed.machine_bytes_per_s},
                      {"share", speed.bytes_per_s / speed.machine_bytes_per_s}};
}

json::object timings_json(const RunFacts& facts, const Answer& answer, const Speed& speed) {
  return {{"load_s", facts.load_s},
          {"prompt_s", answer.prompt_s},
          {"decode_s", answer.decode_s},
          {"prompt_tokens_per_s", speed.prompt_tokens_per_s},
          {"decode_tokens_per_s", speed.decode_tokens_per_s}};
}

// "1234", "87", "0.42": whole numbers once they are large.
std::string rate_text(double rate) { return fmt::format("{:.{}f}", rate, rate < 1 ? 2 : rate < 20 ? 1 : 0); }

std::string tokens_text(std::int64_t count, std::string_view what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

}  // namespace

Speed Speedometer::measure(std::int64_t prompt_tokens, const Answer& answer) {
  Speed speed;
  const auto steps = static_cast<double>(answer.tokens.size()) - 1;  // the first token comes with the prompt
  if (answer.prompt_s > 0) speed.prompt_tokens_per_s = static_cast<double>(prompt_tokens - answer.cached_tokens) / answer.prompt_s;
  if (steps >= 1 && answer.decode_s > 0) speed.decode_tokens_per_s = steps / answer.decode_s;
  if (answer.tokens.size() < kTokensWorthMeasuring || speed.decode_tokens_per_s == 0) return speed;
  const std::int64_t middle = prompt_tokens + static_cast<std::int64_t>(answer.tokens.size()) / 2;
  Cost step;
  for (const Ops::Call& call : engine_.runner().plan(1, std::min(middle, engine_.runner().limits().max_context))) step += call.cost;
  const DeviceMemory* const gpu = engine_.runner().memory();
  if (gpu == nullptr) step.bytes *= engine_.ranks();  // all ranks read from one memory
  speed.of = gpu != nullptr ? "the GPU's memory bandwidth" : "this machine's read bandwidth";
  if (!machine_bytes_per_s_) machine_bytes_per_s_ = gpu != nullptr ? gpu->info().cuda.memory_gbs * 1e9 : measure_read_bandwidth(pool_);
  if (*machine_bytes_per_s_ <= 0) return speed;
  speed.bytes_per_s = step.bytes * speed.decode_tokens_per_s;
  speed.machine_bytes_per_s = *machine_bytes_per_s_;
  return speed;
}

std::string closing_line(std::int64_t prompt_tokens, const Answer& answer, const Speed& speed, const EffectiveSampling& sampling) {
  std::string line = fmt::format("{}, {} tok/s | {}", tokens_text(prompt_tokens, "prompt token"), rate_text(speed.prompt_tokens_per_s),
                                 tokens_text(static_cast<std::int64_t>(answer.tokens.size()), "token"));
  if (speed.decode_tokens_per_s > 0) line += fmt::format(", {} tok/s decode", rate_text(speed.decode_tokens_per_s));
  if (speed.bytes_per_s > 0) {
    line += fmt::format(", {}/s = {:.0f} % of {} ({}/s)", bytes_text(speed.bytes_per_s),
                        100 * speed.bytes_per_s / speed.machine_bytes_per_s, speed.of, bytes_text(speed.machine_bytes_per_s));
  }
  if (answer.finish_reason == "length") line += " | cut at the token limit";
  if (answer.finish_reason == "interrupted") line += " | interrupted";
  if (sampling.seed_was_drawn) line += fmt::format(" | seed {}", sampling.params.seed);
  return line;
}

std::string answer_json(const Session& session, Engine& engine, const RunFacts& facts, const Answer& answer, const Speed& speed,
                        const EffectiveSampling& sampling) {
  const json::object object{{"model", session.name},
                            {"text", answer.text},
                            {"reasoning", answer.reasoning},
                            {"token_ids", json::array(answer.tokens.begin(), answer.tokens.end())},
                            {"finish_reason", answer.finish_reason},
                            {"prompt_tokens", facts.prompt_tokens},
                            {"completion_tokens", answer.tokens.size()},
                            {"seed", sampling.params.seed},
                            {"sampling", sampling_json(sampling.params)},
                            {"precision", session.precision_name},
                            {"threads", session.pool->threads()},
                            {"context", facts.context},
                            {"device", session.device_names()},
                            {"ranks", session.ranks()},
                            {"kernels", json::object{{"set", session.kernels}, {"ops", kernels_json(engine, facts.context)}}},
                            {"timings", timings_json(facts, answer, speed)},
                            {"bandwidth", bandwidth_json(speed)}};
  return json::serialize(object) + "\n";
}

}  // namespace reckoner
