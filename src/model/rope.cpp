#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace reckoner {
namespace {

// The (fractional) pair that turns `turns` times within the original context.
double pair_of_turns(const RopeConfig& rope, double dim, double turns) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  return dim * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
}

}  // namespace

std::vector<float> rope_frequencies(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const auto dim = static_cast<double>(config.rotary_dim());
  std::vector<float> frequencies;
  const double low = rope.is_yarn() ? std::max(std::floor(pair_of_turns(rope, dim, rope.beta_fast)), 0.0) : 0;
  const double high = rope.is_yarn() ? std::min(std::ceil(pair_of_turns(rope, dim, rope.beta_slow)), dim - 1) : 0;
  for (std::int64_t i = 0; i < config.rotary_dim() / 2; ++i) {
    const double frequency = std::pow(rope.theta, -2 * static_cast<double>(i) / dim);
    const double width = high == low ? 0.001 : high - low;
    const double ramp = rope.is_yarn() ? std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0) : 0;
    frequencies.push_back(static_cast<float>(frequency / rope.factor * ramp + frequency * (1 - ramp)));
  }
  return frequencies;
}

float attention_scale(const ModelConfig& config) {
  const std::int64_t width = config.is_mla() ? config.qk_nope_head_dim + config.qk_rope_head_dim : config.head_dim;
  double scale = 1 / std::sqrt(static_cast<double>(width));
  if (config.rope.is_yarn() && config.rope.factor > 1) {
    const double m = 0.1 * config.rope.mscale_all_dim * std::log(config.rope.factor) + 1;
    scale *= m * m;
  }
  return static_cast<float>(scale);
}

}  // namespace reckoner
