#include "diagnose/compare/compare.h"

#include <gtest/gtest.h>

#include <cmath>

namespace reckoner {
namespace {

// Probabilities 1/2, 1/4, 1/4 against 1/4, 1/2, 1/4: 1/2 ln 2 - 1/4 ln 2 = 1/4 ln 2. Logits may be shifted by any constant.
TEST(Diverge, HandComputedProbabilities) {
  const std::vector<float> a = {std::log(2.0f) + 5, 5, 5};
  const std::vector<float> b = {-300, std::log(2.0f) - 300, -300};
  const PositionDivergence found = diverge(a, b, 0);
  EXPECT_NEAR(found.kl, 0.25 * std::log(2.0), 1e-5);  // -300 + ln 2 keeps 15 bits behind the point
  EXPECT_FALSE(found.same_top);
  EXPECT_NEAR(found.logprob_a, std::log(0.5), 1e-6);
  EXPECT_NEAR(found.logprob_b, std::log(0.25), 1e-4);
}

TEST(Diverge, NothingBetweenEqualModelsAndNoOverflow) {
  const std::vector<float> logits = {88, 200, -1000};
  const PositionDivergence found = diverge(logits, logits, -1);
  EXPECT_EQ(found.kl, 0);
  EXPECT_TRUE(found.same_top);
  EXPECT_EQ(found.logprob_a, 0);
}

// The divergence is of B from A, not of A from B.
TEST(Diverge, IsNotSymmetric) {
  const std::vector<float> a = {0, 0};
  const std::vector<float> b = {10, 0};
  EXPECT_NEAR(diverge(a, b, -1).kl, 5 + std::log1p(std::exp(-10)) - std::log(2.0), 1e-6);
  EXPECT_NEAR(diverge(b, a, -1).kl, std::log(2.0), 1e-3);
}

}  // namespace
}  // namespace reckoner
