#include "diagnose/verify/routing.h"

#include <gtest/gtest.h>

namespace reckoner {
namespace {

Tensor view_of(std::vector<float>& values, const Shape& shape) {
  return {.data = reinterpret_cast<std::byte*>(values.data()), .dtype = DType::f32, .shape = shape};
}

// One sparse layer whose router chooses two of its experts by sigmoid(logit) alone.
class RoutingGuideTest : public testing::Test {
 protected:
  void set_up(std::int64_t experts, std::int64_t groups) {
    config_.n_routed_experts = experts;
    config_.num_experts_per_tok = 2;
    config_.n_group = groups;
    config_.topk_group = 1;
    bias_.assign(static_cast<std::size_t>(experts), 0.0f);
    weights_.layers.resize(1);
    weights_.layers[0].moe.router_bias = view_of(bias_, {experts});
  }

  // Guides an exact run with these logits along a run that saw others; its activations are off by 2^-9. `exact` becomes what is routed by.
  RoutingGuide guided(std::vector<float>& exact, std::vector<float> seen) {
    const auto experts = static_cast<std::int64_t>(bias_.size());
    const auto rows = static_cast<std::int64_t>(exact.size()) / experts;
    log_.record(0, 0, view_of(seen, {rows, experts}));
    RoutingGuide guide(config_, weights_, log_);
    for (std::int64_t row = 0; row < rows; ++row)  // row by row, whatever the logged run's steps were
      guide.guide(0, row, view_of(exact, {rows, experts}).rows(row, 1), 0x1p-9);
    return guide;
  }

  RouterLog log_;
  ModelConfig config_;
  ModelWeights weights_;
  std::vector<float> bias_;
};

TEST_F(RoutingGuideTest, TheSameExpertsAreNoChange) {
  set_up(4, 1);
  std::vector<float> exact = {2, 1, 0, -1, -1, 0, 1, 2};
  const std::vector<float> before = exact;
  const RoutingGuide guide = guided(exact, {1, 2, 0, -1, -1, 0, 2, 1});
  EXPECT_TRUE(guide.ties.empty() && guide.errors.empty());
  EXPECT_EQ(exact, before);
}

TEST_F(RoutingGuideTest, ANearTieIsResolvedAsTheRunDid) {
  set_up(4, 1);
  std::vector<float> exact = {2, 1, 0, -1, /* row 1 */ 2, 0.001f, 0, -1};
  const RoutingGuide guide = guided(exact, {2, 1, 0, -1, /* row 1 */ 2, 0, 0.001f, -1});
  ASSERT_EQ(guide.ties.size(), 1u);
  EXPECT_TRUE(guide.errors.empty());
  const RoutingChange& change = guide.ties.front();
  EXPECT_EQ(change.position, 1);
  EXPECT_EQ(change.from, 1);
  EXPECT_EQ(change.to, 2);
  EXPECT_NEAR(change.gap, 0.00025, 1e-6);  // a sigmoid's slope at 0 is 1/4
  // rms of the logits sqrt(5/4), five standard deviations of 2^-9, two scores of slope 1/4
  EXPECT_NEAR(change.allowed, 5 * 0x1p-9 * 1.118 / 2, 1e-5);
  EXPECT_EQ(exact, (std::vector<float>{2, 1, 0, -1, 2, 0, 0.001f, -1}));
}

TEST_F(RoutingGuideTest, AnotherChoiceBeyondRoundingIsAnErrorAndIsNotFollowed) {
  set_up(4, 1);
  std::vector<float> exact = {2, 1, 0, -1};
  const RoutingGuide guide = guided(exact, {2, 0, 1, -1});
  ASSERT_EQ(guide.errors.size(), 1u);
  EXPECT_TRUE(guide.ties.empty());
  EXPECT_NEAR(guide.errors.front().gap, 0.2311, 1e-4);  // sigmoid(1) - sigmoid(0)
  EXPECT_EQ(exact, (std::vector<float>{2, 1, 0, -1}));
}

TEST_F(RoutingGuideTest, OfTwoChangesTheWorseCounts) {
  set_up(4, 1);
  std::vector<float> exact = {1, 0.999f, 0.998f, -1};
  const RoutingGuide guide = guided(exact, {0, 0, 1, 1});
  ASSERT_EQ(guide.errors.size(), 1u);
  EXPECT_EQ(guide.errors.front().to, 3);
}

// The second group is nearly as good as the first; its best expert is the best of all.
TEST_F(RoutingGuideTest, GroupsDecideByTheirTwoBest) {
  set_up(4, 2);
  std::vector<float> near = {1, 0.5f, 1.4f, 0.2f};
  const RoutingGuide tie = guided(near, {1, 0.5f, 1.4f, 0.21f});  // 0.73 + 0.62 against 0.80 + 0.55
  ASSERT_EQ(tie.ties.size(), 1u);
  EXPECT_LT(tie.ties.front().gap, 0.01);
  log_ = {};
  std::vector<float> far = {1, 0.5f, 1.4f, -3};
  EXPECT_EQ(guided(far, {1, 0.5f, 1.4f, 3}).errors.size(), 1u);
}

}  // namespace
}  // namespace reckoner
