// Models divided among ranks against Hugging Face transformers: the same bound as undivided.
#include <gtest/gtest.h>

#include <tuple>

#include "diagnose/verify/verify.h"
#include "support/host_ranks.h"

namespace reckoner {
namespace {

struct DividedCase {
  std::string model;
  std::string reference;
};
DividedCase folder(const std::string& name) { return {"tests/golden/" + name, "tests/golden/" + name + "/reference.safetensors"}; }

class Divided : public testing::TestWithParam<std::tuple<DividedCase, int>> {};

TEST_P(Divided, ExactMatchesTransformers) {
  const auto& [golden, count] = GetParam();
  HostRanks ranks(golden.model, count);
  auto cases = read_reference(golden.reference, ranks.whole->config);
  ASSERT_TRUE(cases.ok()) << cases.error().message();
  std::vector<std::int64_t> chunks = {0, 37, 1};
  if (cases->size() > 1) {  // the trained model, which is larger
    std::erase_if(*cases, [](const ReferenceCase& reference) { return reference.input_ids.size() > 300; });
    chunks = {37};
  }
  ASSERT_FALSE(cases->empty());
  const auto model = ranks.model({.max_tokens = 128, .max_samples = 128, .max_context = 1100});
  for (const VerifyCase& result : verify(*model, *cases, chunks)) {
    for (const VerifyRun& run : result.runs) {
      EXPECT_EQ(run.failure, "") << result.name << ", " << run.chunk << " tokens a step";
      EXPECT_LE(run.logit_error, 1e-3);
      EXPECT_GT(run.argmax_checked, 0);
      EXPECT_EQ(run.argmax_wrong, 0);
      EXPECT_EQ(run.generated_equal, result.generated);
      for (const double error : run.hidden_error) EXPECT_LE(error, 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Divided,
    testing::Combine(testing::Values(folder("glm_moe_dsa"), folder("glm_moe_dsa_shared"), folder("glm_moe_dsa_real_latent"),
                                     folder("deepseek_v32"), folder("deepseek_v3_groups"), folder("kimi_k2"), folder("glm4_moe"),
                                     folder("glm4_moe_lite"), DividedCase{"models/pocket", "tests/data/pocket-golden.safetensors"}),
                     testing::Values(2, 4)),
    [](const auto& parameter) {
      const std::string model = std::get<0>(parameter.param).model;
      return model.substr(model.find_last_of('/') + 1) + "_among_" + std::to_string(std::get<1>(parameter.param));
    });

}  // namespace
}  // namespace reckoner
