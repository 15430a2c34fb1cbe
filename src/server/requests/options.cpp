#include "server/requests/options.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace reckoner {
namespace {

constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxBiases = 1024;

// {"42": -1.5}
Status read_logit_bias(const JsonNode& root, const RequestLimits& limits, SamplingParams& sampling) {
  const std::optional<JsonNode> field = TRY(root.optional("logit_bias"));
  if (!field) return {};
  const auto members = TRY(field->as_object());
  if (members.size() > kMaxBiases) return field->unexpected(fmt::format("at most {} members", kMaxBiases));
  for (const auto& [key, node] : members) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= limits.vocab)
      return node.error(fmt::format("expected a token id below {} as the key", limits.vocab), "/tokenize shows the ids of a text");
    const double bias = TRY(node.as_float());
    if (bias < -100 || bias > 100) return node.unexpected("a number from -100 to 100");
    sampling.logit_bias[id] = bias;
  }
  return {};
}

// What a request leaves out is as the model's authors recommend.
Result<SamplingParams> read_sampling(const JsonNode& root, const RequestLimits& limits) {
  const GenerationConfig& defaults = limits.defaults;
  const bool greedy = defaults.do_sample == false;
  SamplingParams sampling;
  sampling.temperature = TRY(read_number(root, "temperature", 0, 100, greedy ? 0 : defaults.temperature.value_or(1)));
  sampling.top_p = TRY(read_number(root, "top_p", 0, 1, defaults.top_p.value_or(1)));
  if (sampling.top_p == 0) sampling.top_p = std::numeric_limits<double>::min();  // only the most probable token, as elsewhere
  sampling.top_k = TRY(read_integer(root, "top_k", -1, std::numeric_limits<std::int32_t>::max(), defaults.top_k.value_or(0)));
  if (sampling.top_k < 0) sampling.top_k = 0;
  sampling.min_p = TRY(read_number(root, "min_p", 0, 1, defaults.min_p.value_or(0)));
  sampling.repetition_penalty = TRY(read_number(root, "repetition_penalty", 0.01, 100, defaults.repetition_penalty.value_or(1)));
  sampling.presence_penalty = TRY(read_number(root, "presence_penalty", -2, 2, 0));
  sampling.frequency_penalty = TRY(read_number(root, "frequency_penalty", -2, 2, 0));
  sampling.seed = static_cast<std::uint64_t>(
      TRY(read_integer(root, "seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), 0)));
  TRY(read_logit_bias(root, limits, sampling));
  return sampling;
}

constexpr KnownField kStreamOptionFields[] = {{"include_usage"}, {"continuous_usage_stats"}, {"include_obfuscation", FieldUse::inert}};

Status read_stream_options(const JsonNode& root, GenerationOptions& options) {
  options.stream = TRY(read_flag(root, "stream", false));
  const std::optional<JsonNode> node = TRY(root.optional("stream_options"));
  if (!node) return {};
  if (!options.stream) return node->error("only streams have options", "leave it out, or set stream to true");
  TRY(check_fields(*node, kStreamOptionFields));
  options.continuous_usage = TRY(read_flag(*node, "continuous_usage_stats", false));
  options.include_usage = TRY(read_flag(*node, "include_usage", false));
  return {};
}

}  // namespace

std::span<const KnownField> option_fields() {
  static constexpr KnownField kFields[] = {
      {"temperature"},
      {"top_p"},
      {"top_k"},
      {"min_p"},
      {"repetition_penalty"},
      {"presence_penalty"},
      {"frequency_penalty"},
      {"seed"},
      {"logit_bias"},
      {"stream"},
      {"stream_options"},
      {"n"},
      {"stop"},
      {"stop_token_ids"},
      {"min_tokens"},
      {"ignore_eos"},
      {"max_tokens"},
      {"skip_special_tokens"},
      {"user", FieldUse::inert},
      {"metadata", FieldUse::inert},
      {"store", FieldUse::inert},
      {"service_tier", FieldUse::inert},
      {"safety_identifier", FieldUse::inert},
      {"prompt_cache_key", FieldUse::inert},
      {"prompt_cache_retention", FieldUse::inert},
      {"request_id", FieldUse::inert},
      {"spaces_between_special_tokens", FieldUse::inert},
      {"best_of", FieldUse::absent},
      {"use_beam_search", FieldUse::absent},
      {"length_penalty", FieldUse::absent},
      {"include_stop_str_in_output", FieldUse::absent},
      {"prompt_logprobs", FieldUse::absent},
      {"truncate_prompt_tokens", FieldUse::absent},
      {"priority", FieldUse::absent},
      {"bad_words", FieldUse::absent},
      {"return_token_ids", FieldUse::absent},
  };
  return kFields;
}

Result<std::vector<std::string>> read_stop(const JsonNode& root, std::string_view key) {
  std::vector<std::string> stops;
  const std::optional<JsonNode> field = TRY(root.optional(key));
  if (!field) return stops;
  std::vector<JsonNode> nodes = {*field};
  if (!field->is_string()) {
    if (!field->is_array()) return field->unexpected("a string or an array of strings");
    nodes = TRY(field->as_array());
  }
  if (nodes.size() > kMaxStops) return field->unexpected(fmt::format("at most {} strings", kMaxStops));
  for (const JsonNode& node : nodes) {
    stops.push_back(TRY(node.as_string()));
    if (stops.back().empty()) return node.error("expected a text, found an empty one", "leave it out");
  }
  return stops;
}

Result<GenerationOptions> read_options(const JsonNode& root, const RequestLimits& limits) {
  GenerationOptions options;
  options.sampling = TRY(read_sampling(root, limits));
  options.has_seed = TRY(root.optional("seed")).has_value();
  options.n = TRY(read_integer(root, "n", 1, kMaxChoices, 1));
  options.min_tokens = TRY(read_integer(root, "min_tokens", 0, limits.max_context, 0));
  options.ignore_eos = TRY(read_flag(root, "ignore_eos", false));
  options.skip_special_tokens = TRY(read_flag(root, "skip_special_tokens", true));
  options.stop = TRY(read_stop(root, "stop"));
  for (const std::int64_t id : TRY(read_integers(root, "stop_token_ids", 0, limits.vocab - 1, kMaxBiases)))
    options.stop_token_ids.push_back(static_cast<std::int32_t>(id));
  TRY(read_stream_options(root, options));
  return options;
}

}  // namespace reckoner
