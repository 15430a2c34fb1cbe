// A sequence that stands on another one's cache pages computes what it would have computed alone, in every kind of cache.
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "engine/batch_builder.h"
#include "engine/kv_pool.h"
#include "kernels/cpu/catalogue.h"

namespace reckoner {
namespace {

using Param = std::tuple<const char*, KvCacheType>;
class SharedPrefix : public testing::TestWithParam<Param> {};

constexpr std::int64_t kShared = kPageTokens;  // a page
constexpr std::int64_t kOwn = 30;

std::vector<std::int32_t> tokens_of(int sequence) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < kShared + kOwn; ++i)
    ids.push_back(static_cast<std::int32_t>((i * 53 + (i < kShared ? 0 : 7 + sequence * 31)) % 318 + 2));
  return ids;
}

// Logits of tokens [first, end) of a sequence on these pages: [end - first, vocab].
std::vector<float> logits_of(StepRunner& runner, const std::vector<std::int32_t>& ids, std::int64_t first,
                             const std::vector<std::int32_t>& pages) {
  BatchBuilder builder;
  for (std::int64_t i = first; i < static_cast<std::int64_t>(ids.size()); ++i)
    builder.add(ids[static_cast<std::size_t>(i)], i, pages, i >= kShared ? Sample::yes : Sample::no);
  const Tensor logits = runner.run(builder.batch()).logits;
  return {logits.f32(), logits.f32() + logits.shape.elements()};
}

TEST_P(SharedPrefix, EqualsAColdRunBitForBit) {
  const auto& [name, cache_type] = GetParam();
  const auto model = open_model(std::string("tests/golden/") + name);
  ASSERT_TRUE(model.ok()) << model.error().message();
  ThreadPool pool(1);
  StepRunner runner(**model, cpu_catalogue(), detect_cpu(), pool, Precision::exact,
                    {.max_tokens = 128, .max_samples = 128, .max_context = 128, .cache_type = cache_type});
  KvPool cache(runner.cache_layout(), 6);
  runner.use_cache(cache.layout());
  const std::vector<std::int32_t> first_pages = *cache.allocate(2);
  const std::vector<std::int32_t> cold_pages = *cache.allocate(2);
  logits_of(runner, tokens_of(1), 0, first_pages);
  const std::vector<float> cold = logits_of(runner, tokens_of(2), 0, cold_pages);
  const std::vector<float> warm = logits_of(runner, tokens_of(2), kShared, {first_pages[0], cache.allocate(1)->front()});
  ASSERT_EQ(warm.size(), cold.size());
  EXPECT_EQ(std::memcmp(warm.data(), cold.data(), warm.size() * sizeof(float)), 0);
}

std::string name_of(const testing::TestParamInfo<Param>& info) {
  const KvCacheType type = std::get<1>(info.param);
  return std::string(std::get<0>(info.param)) + (type == KvCacheType::fp8 ? "_fp8" : type == KvCacheType::bf16 ? "_bf16" : "_float");
}

INSTANTIATE_TEST_SUITE_P(, SharedPrefix,
                         testing::Combine(testing::Values("glm_moe_dsa_shared", "glm_moe_dsa_real_latent", "deepseek_v32", "kimi_k2",
                                                          "glm4_moe"),
                                          testing::Values(KvCacheType::automatic, KvCacheType::bf16, KvCacheType::fp8)),
                         name_of);

// By arithmetic from the published layout: 512 codes, 4 scales and 64 BF16 for a latent row, 128 codes and a scale for an index key.
TEST(KvLayout, BytesATokenInFp8) {
  const auto config = read_model_config("tests/golden/glm_moe_dsa_real_latent");
  ASSERT_TRUE(config.ok()) << config.error().message();
  const KvLayout layout = kv_layout(*config, Precision::fast, KvCacheType::fp8);
  EXPECT_EQ(layout.latent[0].row_bytes(), 656);
  EXPECT_EQ(layout.index_keys[0].row_bytes(), 132);
  EXPECT_EQ(layout.bytes_per_token(), 2 * (656 + 132));
  EXPECT_EQ(kv_layout(*config, Precision::fast, KvCacheType::automatic).bytes_per_token(), 2 * (2 * 576 + 2 * 128));
  EXPECT_EQ(kv_layout(*config, Precision::exact, KvCacheType::automatic).bytes_per_token(), 2 * (4 * 576 + 4 * 128));
}

}  // namespace
}  // namespace reckoner
