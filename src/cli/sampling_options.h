// The sampling flags of `run`, and what they come to together with the model's own recommendation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/parser_forward.h"
#include "engine/sampler.h"
#include "formats/generation_config.h"
#include "formats/settings.h"

namespace reckoner {

struct SamplingFlags {
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<std::int64_t> top_k;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> logit_bias;  // "ID=BIAS"
  bool greedy = false;
};
void add_sampling_options(CLI::App& app, SamplingFlags& flags);

struct EffectiveSampling {
  SamplingParams params;
  bool seed_was_drawn = false;  // nobody gave one
  std::vector<Setting> settings;
};
// Greedy, so that the same question has the same answer, unless a flag asks for sampling; then what no flag says is taken from
// generation_config.json. Penalties and biases do not turn sampling on. `random_seed` is used when sampling without --seed.
Result<EffectiveSampling> effective_sampling(const SamplingFlags& flags, const GenerationConfig& recommended, std::int64_t vocab,
                                             std::uint64_t random_seed);

}  // namespace reckoner
