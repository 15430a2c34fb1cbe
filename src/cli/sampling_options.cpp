#include "cli/sampling_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>

#include "cli/options.h"

namespace reckoner {
namespace {

// "42=-1.5"
Result<std::pair<std::int32_t, double>> parse_bias(const std::string& text) {
  const std::size_t equals = text.find('=');
  std::int32_t id = 0;
  double bias = 0;
  const char* const end = text.data() + text.size();
  const char* const middle = text.data() + std::min(equals, text.size());
  const bool has_id = equals != std::string::npos && std::from_chars(text.data(), middle, id).ptr == middle && middle != text.data();
  if (!has_id || std::from_chars(middle + 1, end, bias).ptr != end || middle + 1 == end) {
    return Error{fmt::format("--logit-bias: expected ID=BIAS, a token id and a number, found '{}'", text),
                 "for example --logit-bias 42=-5; `reckoner tokenize` shows the ids of a text"};
  }
  return std::pair(id, bias);
}

std::string recommendation(const GenerationConfig& recommended) {
  std::vector<std::string> parts;
  if (recommended.temperature) parts.push_back(fmt::format("temperature {}", *recommended.temperature));
  if (recommended.top_p) parts.push_back(fmt::format("top_p {}", *recommended.top_p));
  if (recommended.top_k) parts.push_back(fmt::format("top_k {}", *recommended.top_k));
  if (recommended.min_p) parts.push_back(fmt::format("min_p {}", *recommended.min_p));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Takes the flag if it is given, else the recommendation if there is one, and notes which.
class Chooser {
 public:
  explicit Chooser(std::vector<Setting>& settings) : settings_(settings) {}
  template <class T>
  void choose(const char* name, T& value, const std::optional<T>& flag, const std::optional<T>& recommended) {
    const char* source = "off";
    if (recommended) {
      value = *recommended;
      source = "generation_config.json";
    }
    if (flag) {
      value = *flag;
      source = "given";
    }
    settings_.push_back({name, fmt::format("{}", value), source, overruled(flag, recommended)});
  }

 private:
  template <class T>
  static std::string overruled(const std::optional<T>& flag, const std::optional<T>& recommended) {
    return flag && recommended && *flag != *recommended ? fmt::format("generation_config.json recommends {}", *recommended) : "";
  }
  std::vector<Setting>& settings_;
};

void choose_cuts(const SamplingFlags& flags, const GenerationConfig& recommended, EffectiveSampling& sampling) {
  Chooser chooser(sampling.settings);
  chooser.choose("temperature", sampling.params.temperature, flags.temperature, recommended.temperature);
  chooser.choose("top_k", sampling.params.top_k, flags.top_k, recommended.top_k);
  chooser.choose("top_p", sampling.params.top_p, flags.top_p, recommended.top_p);
  chooser.choose("min_p", sampling.params.min_p, flags.min_p, recommended.min_p);
}

void stay_greedy(const SamplingFlags& flags, const GenerationConfig& recommended, EffectiveSampling& sampling) {
  sampling.params.temperature = 0;
  const std::string asked = recommendation(recommended);
  std::string note = flags.greedy ? "--greedy" : "run is greedy unless asked";
  if (!asked.empty() && recommended.do_sample.value_or(true)) note = fmt::format("generation_config.json recommends {}; {}", asked, note);
  sampling.settings.push_back({"sampling", "greedy", "", note});
}

}  // namespace

void add_sampling_options(CLI::App& app, SamplingFlags& flags) {
  const auto number = [&](const char* name, auto& value, const char* about) {
    return app.add_option(name, value, about)->option_text("X")->group("Sampling");
  };
  CLI::Option* const greedy =
      app.add_flag("--greedy", flags.greedy, "Always the most probable token (the default)")->option_text(" ")->group("Sampling");
  greedy->excludes(number("--temperature", flags.temperature, "Randomness; 0: greedy"));
  greedy->excludes(number("--top-k", flags.top_k, "Only the N most probable tokens; 0: all")->option_text("N"));
  greedy->excludes(number("--top-p", flags.top_p, "Only the most probable tokens that together reach X"));
  greedy->excludes(number("--min-p", flags.min_p, "Only tokens at least X times as probable as the best"));
  CLI::Option* const seed =
      app.add_option("--seed", flags.seed, "The same seed gives the same answer (default: random)")->group("Sampling");
  accept_range(seed, 0, std::numeric_limits<std::int64_t>::max());
  greedy->excludes(seed);
  number("--repetition-penalty", flags.repetition_penalty, "Above 1: tokens seen before become less probable");
  number("--presence-penalty", flags.presence_penalty, "Subtracted from the logits of tokens already answered");
  number("--frequency-penalty", flags.frequency_penalty, "The same, times how often they occurred");
  app.add_option("--logit-bias", flags.logit_bias, "Add BIAS to the logit of token ID; may be repeated")
      ->option_text("ID=BIAS")
      ->allow_extra_args(false)
      ->group("Sampling");
}

Result<EffectiveSampling> effective_sampling(const SamplingFlags& flags, const GenerationConfig& recommended, std::int64_t vocab,
                                             std::uint64_t random_seed) {
  EffectiveSampling sampling;
  const bool asked = flags.temperature || flags.top_k || flags.top_p || flags.min_p || flags.seed;
  if (asked) {
    choose_cuts(flags, recommended, sampling);
  } else {
    stay_greedy(flags, recommended, sampling);
  }
  const std::optional<double> nothing;
  Chooser chooser(sampling.settings);
  chooser.choose("repetition_penalty", sampling.params.repetition_penalty, flags.repetition_penalty, recommended.repetition_penalty);
  chooser.choose("presence_penalty", sampling.params.presence_penalty, flags.presence_penalty, nothing);
  chooser.choose("frequency_penalty", sampling.params.frequency_penalty, flags.frequency_penalty, nothing);
  for (const std::string& text : flags.logit_bias) {
    const auto [id, bias] = TRY(parse_bias(text));
    sampling.params.logit_bias[id] = bias;
    sampling.settings.push_back({"logit_bias", text, "given", ""});
  }
  sampling.seed_was_drawn = sampling.params.temperature > 0 && !flags.seed;
  sampling.params.seed = flags.seed.value_or(sampling.seed_was_drawn ? random_seed : 0);
  if (sampling.params.temperature > 0)
    sampling.settings.push_back({"seed", std::to_string(sampling.params.seed), sampling.seed_was_drawn ? "random" : "given", ""});
  TRY(check(sampling.params, vocab));
  return sampling;
}

}  // namespace reckoner
