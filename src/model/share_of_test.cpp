// Which part of each weight a rank has, and what cannot be divided.
#include "model/share_of.h"

#include <gtest/gtest.h>

#include "quant/format.h"

namespace reckoner {
namespace {

std::unique_ptr<Model> opened(const std::string& folder) {
  auto model = open_model(folder);
  CHECK(model.ok(), folder);
  return std::move(model).value();
}

std::unique_ptr<Model> share(const Model& whole, int rank, int count) {
  auto part = share_of(whole, {rank, count});
  CHECK(part.ok(), part.ok() ? "" : part.error().what);
  return std::move(part).value();
}

std::vector<float> numbers(const Weight& w, std::int64_t row, std::int64_t first, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  info(w.format).dequantise(w, row, first, count, values.data());
  return values;
}

// The part is rows [first, first + part.rows) of the whole, where they lie.
void expect_rows(const Weight& part, const Weight& whole, std::int64_t first, std::int64_t count) {
  EXPECT_EQ(part.rows, count) << whole.name;
  EXPECT_EQ(part.data, whole.data + first * info(whole.format).row_bytes(whole.cols)) << whole.name;
}

void expect_columns(const Weight& part, const Weight& whole, std::int64_t first, std::int64_t count) {
  ASSERT_EQ(part.rows, whole.rows);
  ASSERT_EQ(part.cols, count) << whole.name;
  for (std::int64_t row = 0; row < whole.rows; ++row)
    EXPECT_EQ(numbers(part, row, 0, count), numbers(whole, row, first, count)) << whole.name;
}

// 8 heads of 32 + 64 and 32 + 32, dense 512 wide, 16 experts 128 wide in NVFP4, a vocabulary of 4096.
TEST(ShareOf, LatentAttentionAndExperts) {
  const auto whole = opened("models/pocket");
  for (int rank = 0; rank < 4; ++rank) {
    const auto part = share(*whole, rank, 4);
    ThreadPool pool(2);
    ASSERT_TRUE(read_share(*part, pool, {}).ok());
    EXPECT_EQ(part->config.num_attention_heads, 2);
    const LayerWeights& all = whole->weights.layers[1];
    const LayerWeights& own = part->weights.layers[1];
    expect_rows(own.attention.q_a, all.attention.q_a, 0, 128);
    expect_rows(own.attention.q_b, all.attention.q_b, rank * 2 * 96, 2 * 96);
    expect_rows(own.attention.kv_a, all.attention.kv_a, 0, 512 + 64);
    expect_rows(own.attention.kv_b, all.attention.kv_b, rank * 2 * 64, 2 * 64);
    expect_columns(own.attention.o, all.attention.o, rank * 2 * 32, 2 * 32);
    expect_rows(own.indexer.wq_b, all.indexer.wq_b, 0, all.indexer.wq_b.rows);
    expect_rows(own.moe.router, all.moe.router, 0, 16);
    expect_rows(own.moe.gate[5], all.moe.gate[5], rank * 32, 32);
    expect_rows(own.moe.up[5], all.moe.up[5], rank * 32, 32);
    expect_columns(own.moe.down[5], all.moe.down[5], rank * 32, 32);
    expect_columns(own.moe.shared.down, all.moe.shared.down, rank * 32, 32);
    expect_columns(part->weights.layers[0].mlp.down, whole->weights.layers[0].mlp.down, rank * 128, 128);
    expect_rows(part->weights.lm_head, whole->weights.lm_head, rank * 1024, 1024);
    expect_rows(part->weights.embed, whole->weights.embed, 0, 4096);
    EXPECT_EQ(vocabulary_part(*part), (Range{rank * 1024, 1024}));
  }
}

// 4 query heads and 2 of keys and values, 32 wide: of 4 ranks two have the same keys.
TEST(ShareOf, KeysAndValuesAreSharedByRanksWhereTheyHaveTo) {
  const auto whole = opened("tests/golden/glm4_moe");
  const GroupedQueryWeights& all = whole->weights.layers[0].grouped;
  for (int rank = 0; rank < 4; ++rank) {
    const auto part = share(*whole, rank, 4);
    const GroupedQueryWeights& own = part->weights.layers[0].grouped;
    EXPECT_EQ(part->config.num_key_value_heads, 1);
    expect_rows(own.q, all.q, rank * 32, 32);
    expect_rows(own.k, all.k, rank / 2 * 32, 32);
    expect_rows(own.v, all.v, rank / 2 * 32, 32);
    EXPECT_EQ(own.q_norm.data, all.q_norm.data);
    if (all.q_bias.empty()) continue;
    EXPECT_EQ(own.q_bias.f32(), all.q_bias.f32() + rank * 32);
    EXPECT_EQ(own.k_bias.f32(), all.k_bias.f32() + rank / 2 * 32);
    EXPECT_EQ(own.v_bias.shape, (Shape{32}));
  }
  const auto half = share(*whole, 1, 2);
  expect_rows(half->weights.layers[0].grouped.k, all.k, 32, 32);
}

TEST(ShareOf, ATiedHeadIsAPartOfTheEmbedding) {
  const auto whole = opened("tests/golden/glm4_moe");
  whole->config.tie_word_embeddings = true;
  whole->weights.lm_head = whole->weights.embed;
  const auto part = share(*whole, 1, 2);
  expect_rows(part->weights.embed, whole->weights.embed, 0, 320);
  expect_rows(part->weights.lm_head, whole->weights.embed, 160, 160);
}

TEST(ShareOf, SharesHaveEveryDividedByteOnce) {
  const auto whole = opened("models/pocket");
  std::int64_t divided = 0;
  std::int64_t of_ranks = 0;
  for (const std::vector<Weight> MoeWeights::*matrices : {&MoeWeights::gate, &MoeWeights::up, &MoeWeights::down}) {
    for (const Weight& expert : whole->weights.layers[2].moe.*matrices) divided += weight_bytes(expert);
    for (int rank = 0; rank < 2; ++rank) {
      const auto part = share(*whole, rank, 2);
      for (const Weight& expert : part->weights.layers[2].moe.*matrices) of_ranks += weight_bytes(expert);
    }
  }
  EXPECT_EQ(of_ranks, divided);
}

void expect_refused(const Model& model, int ranks, const std::string& what, const std::string& remedy) {
  const auto part = share_of(model, {0, ranks});
  ASSERT_FALSE(part.ok());
  EXPECT_EQ(part.error().what, what);
  EXPECT_EQ(part.error().remedy, remedy);
}

TEST(ShareOf, SaysWhichTensorCannotBeDividedAndWhatCan) {
  const auto model = opened("models/pocket");
  expect_refused(*model, 3, "model.layers.0.self_attn.q_b_proj: 8 attention heads cannot be divided among 3 ranks",
                 "numbers of ranks that can divide this model: 2, 4, 8");
  // With heads enough, it is the blocks of sixteen columns.
  model->config.num_attention_heads = 64;
  expect_refused(
      *model, 16,
      "model.layers.1.mlp.experts.0.down_proj: 128 columns in NVFP4, whose scales cover 16 each, cannot be divided among 16 ranks",
      "numbers of ranks that can divide this model: 2, 4, 8");
  model->config.num_attention_heads = 63;
  expect_refused(*model, 2, "model.layers.0.self_attn.q_b_proj: 63 attention heads cannot be divided among 2 ranks",
                 "no number of ranks can divide this model: leave --tp out");
  const auto grouped = opened("tests/golden/glm4_moe");
  grouped->config.num_attention_heads = 12;
  grouped->config.num_key_value_heads = 4;
  expect_refused(*grouped, 6, "model.layers.0.self_attn.k_proj: 4 heads of keys and values cannot be divided among 6 ranks",
                 "numbers of ranks that can divide this model: 2, 4");
}

TEST(ShareOf, FindsBadScalesInTheColumnsThatItCopies) {
  const auto whole = opened("models/pocket");
  Weight& down = whole->weights.layers[1].moe.down[3];
  ASSERT_EQ(down.format, QuantFormat::nvfp4);
  const std::vector<std::byte> zeros(static_cast<std::size_t>(down.rows * info(down.format).scale_row_bytes(down.cols)));
  down.scales = zeros.data();
  const auto part = share(*whole, 0, 2);
  ThreadPool pool(1);
  const Status read = read_share(*part, pool, {});
  ASSERT_FALSE(read.ok());
  for (const char* piece : {"model-0000", "model.layers.1.mlp.experts.3.down_proj.weight_scale", "found 0 at row 0, block 0"})
    EXPECT_NE(read.error().what.find(piece), std::string::npos) << read.error().what;
}

TEST(ShareOf, ReportsProgressUpToTheWhole) {
  const auto whole = opened("tests/golden/kimi_k2");
  const auto part = share(*whole, 1, 2);
  EXPECT_GT(copied_bytes(*part), 0);
  EXPECT_LT(part->weight_bytes, whole->weight_bytes);
  ThreadPool pool(1);
  std::int64_t last = 0;
  ASSERT_TRUE(read_share(*part, pool, [&](std::int64_t done, std::int64_t total) {
                EXPECT_GE(done, last);
                EXPECT_EQ(total, part->weight_bytes);
                last = done;
              }).ok());
  EXPECT_EQ(last, part->weight_bytes);
  EXPECT_EQ(copied_bytes(*part), 0) << "all columns are in place";
}

}  // namespace
}  // namespace reckoner
