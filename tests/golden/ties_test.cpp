// Near ties of routers: a run that resolves one the other way gives other logits and is right; a run whose router is wrong is not.
#include <gtest/gtest.h>

#include <algorithm>

#include "diagnose/verify/verify.h"
#include "kernels/cpu/catalogue.h"

namespace reckoner {
namespace {

constexpr std::int64_t kExperts = 16;  // of the pocket model
constexpr std::int64_t kTopK = 4;

const Kernel<LinearArgs>* wrapped = nullptr;  // kernels are plain functions
float nudge = 0;

// Moves the router's best expert that is not chosen up by `nudge`: without biases in the way it overtakes the last chosen one where they
// are closer than that.
void run_nudged(const LinearArgs& args, Lane& lane) {
  wrapped->run(args, lane);
  if (args.w.rows != kExperts) return;
  for (std::int64_t row = 0; row < args.y.dim(0); ++row) {
    float* const logits = args.y.f32() + row * kExperts;
    std::vector<std::int64_t> order(kExperts);
    for (std::int64_t e = 0; e < kExperts; ++e) order[static_cast<std::size_t>(e)] = e;
    std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return logits[a] > logits[b]; });
    logits[order[kTopK]] += nudge;
  }
}

class RouterTies : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_model("models/pocket");
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    model_ = std::move(*opened);
    ASSERT_TRUE(read_weights(*model_, pool_, {}).ok());
  }

  StepLimits limits(KvCacheType cache_type) const {
    return {.max_tokens = 1000, .max_samples = 1000, .max_context = 1100, .cache_type = cache_type};
  }

  // The longest case of the pocket model's reference, in fast, with every router's fifth expert moved up.
  VerifyRun verified(float moved_by, bool with_ties) {
    Catalogue catalogue = with_references(cpu_catalogue());
    const DeviceInfo device = detect_cpu();
    auto& linear = catalogue.of<LinearArgs>();
    static Kernel<LinearArgs> exact_kernel;
    exact_kernel = *choose_kernel(linear, {Precision::exact, QuantFormat::bf16}, device);
    wrapped = &exact_kernel;
    nudge = moved_by;
    linear.insert(linear.begin(), {"linear.nudged",
                                   [](const Key& key, const DeviceInfo&) {
                                     return Support{.yes = key.precision == Precision::exact && key.format == QuantFormat::bf16,
                                                    .reason = "only routers"};
                                   },
                                   exact_kernel.workspace_bytes, run_nudged});
    StepRunner runner(*model_, catalogue, device, pool_, Precision::fast, limits(KvCacheType::automatic));
    auto cases = read_reference("tests/data/pocket-golden.safetensors", model_->config);
    EXPECT_TRUE(cases.ok());
    std::erase_if(*cases, [](const ReferenceCase& one) { return one.name != "needle"; });
    EXPECT_EQ(cases->size(), 1u);
    const TieBreaker ties = {.make_exact =
                                 [&] {
                                   return std::make_unique<StepRunner>(*model_, cpu_catalogue(), device, pool_, Precision::exact,
                                                                       limits(KvCacheType::automatic));
                                 },
                             .host_weights = &model_->weights};
    RunnerView view(runner);
    return verify(view, *cases, {0}, with_ties ? ties : TieBreaker{}).front().runs.front();
  }

  ThreadPool pool_{2};
  std::unique_ptr<Model> model_;
};

// 2e-2 of a logit is what rounding may make of it.
TEST_F(RouterTies, ATieThatTipsIsExplained) {
  const VerifyRun alone = verified(2e-2f, false);
  EXPECT_NE(alone.failure, "") << "no position is beyond the bound: the test tests nothing";
  const VerifyRun explained = verified(2e-2f, true);
  EXPECT_EQ(explained.failure, "");
  EXPECT_GT(explained.left_out, 0);
  EXPECT_FALSE(explained.ties.empty());
}

TEST_F(RouterTies, AWrongRouterIsNoTie) {
  const VerifyRun run = verified(1.0f, true);
  EXPECT_NE(run.failure.find("rounding makes"), std::string::npos) << run.failure;
}

}  // namespace
}  // namespace reckoner
