#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace reckoner {
namespace {

ModelConfig deepseek() {
  ModelConfig config;
  config.kv_lora_rank = 512;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.rope = {.theta = 10000,
                 .type = "yarn",
                 .factor = 40,
                 .beta_fast = 32,
                 .beta_slow = 1,
                 .mscale = 1,
                 .mscale_all_dim = 1,
                 .original_max_position_embeddings = 4096};
  return config;
}

// Constants of the published models: 192^-0.5 * (0.1 ln 40 + 1)^2 and 192^-0.5 * (0.1 ln 64 + 1)^2; 256^-0.5 without YaRN.
TEST(Rope, AttentionScaleOfPublishedModels) {
  ModelConfig config = deepseek();
  EXPECT_NEAR(attention_scale(config), 0.13523378, 1e-7);
  config.rope.factor = 64;
  EXPECT_NEAR(attention_scale(config), 0.14467963, 1e-7);
  config.rope = {.theta = 1e6};
  config.qk_nope_head_dim = 192;
  EXPECT_EQ(attention_scale(config), 0.0625f);
}

// The ramp of DeepSeek-V3 runs from pair 10 to pair 23, Kimi-K2's from 8 to 20.
TEST(Rope, YarnFrequencies) {
  ModelConfig config = deepseek();
  const auto ratio = [&](std::size_t pair) {
    return rope_frequencies(config)[pair] / std::pow(config.rope.theta, -static_cast<double>(pair) / 32);
  };
  ASSERT_EQ(rope_frequencies(config).size(), 32u);
  EXPECT_NEAR(ratio(0), 1, 1e-6);
  EXPECT_NEAR(ratio(10), 1, 1e-6);
  EXPECT_NEAR(ratio(11), 1 - (1 - 1.0 / 40) / 13, 1e-6);
  EXPECT_NEAR(ratio(23), 1.0 / 40, 1e-6);
  EXPECT_NEAR(ratio(31), 1.0 / 40, 1e-6);
  config.rope.theta = 50000;
  config.rope.factor = 64;
  EXPECT_NEAR(ratio(8), 1, 1e-6);
  EXPECT_NEAR(ratio(9), 1 - (1 - 1.0 / 64) / 12, 1e-6);
  EXPECT_NEAR(ratio(20), 1.0 / 64, 1e-6);
}

TEST(Rope, PartialRotationOfGroupedHeads) {
  ModelConfig config;
  config.head_dim = 128;
  config.rope = {.theta = 1e6, .partial_rotary_factor = 0.5};
  ASSERT_EQ(rope_frequencies(config).size(), 32u);
  EXPECT_NEAR(rope_frequencies(config)[1], std::pow(1e6, -1.0 / 32), 1e-7);
  EXPECT_FLOAT_EQ(attention_scale(config), 1 / std::sqrt(128.0f));
}

}  // namespace
}  // namespace reckoner
