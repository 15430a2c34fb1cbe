// Hidden states and logits against Hugging Face transformers, for every set of kernels that this machine has.
#include <gtest/gtest.h>

#include <tuple>

#include "diagnose/verify/verify.h"
#include "kernels/cpu/catalogue.h"

namespace reckoner {
namespace {

struct GoldenCase {
  std::string model;
  std::string reference;
};
GoldenCase folder(const std::string& name) { return {"tests/golden/" + name, "tests/golden/" + name + "/reference.safetensors"}; }

class Golden : public testing::TestWithParam<std::tuple<GoldenCase, const char*>> {};

// Every case as one prefill, in chunks that do not divide it, and token by token: all within 1e-3 of transformers.
TEST_P(Golden, ExactMatchesTransformers) {
  const auto& [golden, kernels] = GetParam();
  const DeviceInfo device = limited_to(detect_cpu(), kernels);
  if (std::string(kernels) == "avx512" && !device.avx512) GTEST_SKIP() << "this machine has no AVX-512";
  const auto model = open_model(golden.model);
  ASSERT_TRUE(model.ok()) << model.error().message();
  ThreadPool pool(2);
  ASSERT_TRUE(read_weights(**model, pool, {}).ok());
  auto cases = read_reference(golden.reference, (*model)->config);
  ASSERT_TRUE(cases.ok()) << cases.error().message();
  std::vector<std::int64_t> chunks = {0, 37, 1};
  if (std::string(kernels) == "scalar" && cases->size() > 1) {
    // The references are plain loops: of the trained model they do the short cases, once.
    std::erase_if(*cases, [](const ReferenceCase& reference) { return reference.input_ids.size() > 300; });
    chunks = {0};
  }
  StepRunner runner(**model, cpu_catalogue(), device, pool, Precision::exact, {.max_tokens = 128, .max_samples = 128, .max_context = 1100});
  for (const VerifyCase& result : verify(runner, *cases, chunks)) {
    for (const VerifyRun& run : result.runs) {
      EXPECT_EQ(run.failure, "") << result.name << ", " << run.chunk << " tokens a step";
      EXPECT_LE(run.logit_error, 1e-3);
      EXPECT_GT(run.argmax_checked, 0);
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::tuple<GoldenCase, const char*>>& info) {
  const std::string model = std::get<0>(info.param).model;
  return model.substr(model.find_last_of('/') + 1) + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(
    , Golden,
    testing::Combine(testing::Values(folder("glm_moe_dsa"), folder("glm_moe_dsa_shared"), folder("glm_moe_dsa_real_latent"),
                                     folder("deepseek_v32"), folder("deepseek_v3_groups"), folder("kimi_k2"), folder("glm4_moe"),
                                     folder("glm4_moe_lite"), GoldenCase{"models/pocket", "tests/data/pocket-golden.safetensors"}),
                     testing::Values("scalar", "avx2", "avx512")),
    name_of);

}  // namespace
}  // namespace reckoner
