// What a model's rope settings come to: frequencies, and what YaRN does to the scale of attention.
#pragma once

#include <vector>

#include "formats/model_config.h"

namespace reckoner {

// Radians a token of each rotated pair: theta^(-2i/dim), with YaRN interpolated (dimensions that turn fewer than beta_slow times within the
// original context are divided by the factor, those that turn more than beta_fast times are kept, a ramp in between). It applies at
// every context length: the config decides, not the request.
std::vector<float> rope_frequencies(const ModelConfig& config);

// What attention scores are multiplied with: head width^-0.5, times m^2 under YaRN, m = 0.1 * mscale_all_dim * ln(factor) + 1.
float attention_scale(const ModelConfig& config);

}  // namespace reckoner
