#include "diagnose/verify/routing.h"

#include <gtest/gtest.h>

namespace reckoner {
namespace {

Tensor view_of(std::vector<float>& values, const Shape& shape) {
  return {.data = reinterpret_cast<std::byte*>(values.data()), .dtype = DType::f32, .shape = shape};
}

// One sparse layer whose router chooses two of its experts by sigmoid(logit) alone.
class RouterRulerTest : public testing::Test {
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

  // What a run with these logits changed; its activations are off by 2^-9.
  std::map<std::int64_t, RoutingChange> changes(std::vector<float> exact, std::vector<float> seen) {
    const auto experts = static_cast<std::int64_t>(bias_.size());
    const auto rows = static_cast<std::int64_t>(exact.size()) / experts;
    RouterRuler ruler(config_, weights_);
    ruler.record(0, 0, view_of(exact, {rows, experts}));
    std::map<std::int64_t, RoutingChange> changes;
    for (std::int64_t row = 0; row < rows; ++row)  // row by row, whatever the exact run's steps were
      ruler.compare(0, row, view_of(seen, {rows, experts}).rows(row, 1), 0x1p-9, changes);
    return changes;
  }

  ModelConfig config_;
  ModelWeights weights_;
  std::vector<float> bias_;
};

TEST_F(RouterRulerTest, TheSameExpertsAreNoChange) {
  set_up(4, 1);
  EXPECT_TRUE(changes({2, 1, 0, -1, -1, 0, 1, 2}, {1, 2, 0, -1, -1, 0, 2, 1}).empty());
}

TEST_F(RouterRulerTest, ANearTieThatFellTheOtherWay) {
  set_up(4, 1);
  const auto found = changes({2, 1, 0, -1, /* row 1 */ 2, 0.001f, 0, -1}, {2, 1, 0, -1, /* row 1 */ 2, 0, 0.001f, -1});
  ASSERT_EQ(found.size(), 1u);
  const RoutingChange& change = found.at(1);
  EXPECT_EQ(change.from, 1);
  EXPECT_EQ(change.to, 2);
  EXPECT_NEAR(change.gap, 0.00025, 1e-6);  // a sigmoid's slope at 0 is 1/4
  // rms of the logits sqrt(5/4), five standard deviations of 2^-9, two scores of slope 1/4
  EXPECT_NEAR(change.allowed, 5 * 0x1p-9 * 1.118 / 2, 1e-5);
  EXPECT_TRUE(change.is_tie());
}

TEST_F(RouterRulerTest, AnotherChoiceBeyondRoundingIsAnError) {
  set_up(4, 1);
  const auto found = changes({2, 1, 0, -1}, {2, 0, 1, -1});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(found.at(0).gap, 0.2311, 1e-4);  // sigmoid(1) - sigmoid(0)
  EXPECT_FALSE(found.at(0).is_tie());
}

TEST_F(RouterRulerTest, OfTwoChangesTheWorseCounts) {
  set_up(4, 1);
  const auto found = changes({1, 0.999f, 0.998f, -1}, {0, 0, 1, 1});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.at(0).to, 3);
  EXPECT_FALSE(found.at(0).is_tie());
}

// The second group is nearly as good as the first; its best expert is the best of all.
TEST_F(RouterRulerTest, GroupsDecideByTheirTwoBest) {
  set_up(4, 2);
  const auto tie = changes({1, 0.5f, 1.4f, 0.2f}, {1, 0.5f, 1.4f, 0.21f});  // 0.73 + 0.62 against 0.80 + 0.55
  ASSERT_EQ(tie.size(), 1u);
  EXPECT_LT(tie.at(0).gap, 0.01);
  EXPECT_TRUE(tie.at(0).is_tie());
  const auto error = changes({1, 0.5f, 1.4f, -3}, {1, 0.5f, 1.4f, 3});
  ASSERT_EQ(error.size(), 1u);
  EXPECT_FALSE(error.at(0).is_tie());
}

// What is behind a change is the other choice's consequence.
TEST_F(RouterRulerTest, OnlyTheFirstLayerOfAPositionIsTold) {
  set_up(4, 1);
  weights_.layers.push_back(weights_.layers.front());
  std::vector<float> exact = {2, 0.001f, 0, -1}, near = {2, 0, 0.001f, -1}, far = {-1, 0, 1, 2};
  RouterRuler ruler(config_, weights_);
  std::map<std::int64_t, RoutingChange> changes;
  for (std::int64_t layer = 0; layer < 2; ++layer) ruler.record(layer, 0, view_of(exact, {1, 4}));
  ruler.compare(0, 0, view_of(near, {1, 4}), 0x1p-9, changes);
  ruler.compare(1, 0, view_of(far, {1, 4}), 0x1p-9, changes);
  EXPECT_EQ(changes.at(0).layer, 0);
}

}  // namespace
}  // namespace reckoner
