// Ranks on fake GPUs: the same numbers as ranks on the processor, also where steps are recorded; a GPU that fails ends steps with an error.
#include <gtest/gtest.h>

#include "diagnose/verify/verify.h"
#include "engine/engine.h"
#include "engine/single_sequence.h"
#include "fake_backend.h"
#include "kernels/device/backend_communicator.h"
#include "kernels/device/backend_memory.h"
#include "model/upload.h"
#include "support/host_ranks.h"

namespace reckoner {
namespace {

constexpr StepLimits kLimits = {.max_tokens = 64, .max_samples = 64, .max_context = 200};

class OnFakes {
 public:
  OnFakes(const std::string& folder, int ranks, Graphs with, const FakeGpu& gpu = {.count = 4}) : backend(fake_backend(gpu)), graphs(with) {
    auto opened = open_model(folder);
    CHECK(opened.ok(), folder);
    whole = std::move(opened).value();
    for (int rank = 0; rank < ranks; ++rank) {
      auto share = share_of(*whole, {rank, ranks});
      CHECK(share.ok());
      shares.push_back(std::move(share).value());
      memories.push_back(std::make_unique<BackendMemory>(*backend, rank, (*backend->devices())[0]));
      auto uploaded = upload_weights(*shares.back(), *memories.back(), pool, {});
      CHECK(uploaded.ok(), uploaded.ok() ? "" : uploaded.error().what);
      weights.push_back(std::make_unique<ModelWeights>(std::move(uploaded).value()));
      numbers.push_back(rank);
    }
  }
  std::unique_ptr<TensorParallelModel> model(const StepLimits& limits) {
    auto connected = connect_ranks(*backend, numbers);
    CHECK(connected.ok());
    std::vector<RankParts> parts;
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      parts.push_back(
          {.share = shares[rank].get(),
           .weights = weights[rank].get(),
           .device = {.info = memories[rank]->info(), .catalogue = backend->catalogue(), .memory = memories[rank].get(), .graphs = graphs},
           .communicator = std::move(connected->communicators[rank]),
           .name = "rank " + std::to_string(rank) + " on cuda:" + std::to_string(rank)});
    }
    return std::make_unique<TensorParallelModel>(std::move(parts), pool, Precision::exact, limits);
  }

  const DeviceBackend* backend;
  Graphs graphs;
  ThreadPool pool{2};
  std::unique_ptr<Model> whole;
  std::vector<std::unique_ptr<Model>> shares;
  std::vector<std::unique_ptr<BackendMemory>> memories;
  std::vector<std::unique_ptr<ModelWeights>> weights;
  std::vector<int> numbers;
};

// Logits of a prompt in two chunks, then token by token; every row's.
std::vector<float> logits_of(StepModel& model) {
  SingleSequence sequence(model);
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 60; ++i) ids.push_back((7 + i * 31) % 300);
  std::vector<float> all;
  for (std::size_t first = 0; first < ids.size();) {
    const std::size_t count = first < 48 ? 24 : 1;
    const StepOutput output = sequence.append(std::span(ids).subspan(first, count), Sample::yes);
    EXPECT_EQ(output.error, "");
    EXPECT_EQ(output.logits.dim(1), model.vocab());
    all.insert(all.end(), output.logits.f32(), output.logits.f32() + output.logits.shape.elements());
    first += count;
  }
  return all;
}

class RanksOnFakes : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(RanksOnFakes, GiveWhatTheReferencesGiveOnTheProcessor) {
  const auto& [name, count] = GetParam();
  const std::string folder = std::string("tests/golden/") + name;
  HostRanks host(folder, count);
  const auto host_model = host.model(kLimits, limited_to(detect_cpu(), "scalar"));
  const std::vector<float> expected = logits_of(*host_model);
  for (const Graphs graphs : {Graphs::off, Graphs::on}) {
    OnFakes fakes(folder, count, graphs);
    const auto model = fakes.model(kLimits);
    ASSERT_TRUE(model->status().ok()) << model->status().error().what;
    EXPECT_EQ(logits_of(*model), expected);  // bit by bit: kernels and the order of sums are the same
    EXPECT_EQ(model->runner()->recorded_steps(), graphs == Graphs::on ? 2 : 0);
    EXPECT_EQ(fake_counts().replayed, graphs == Graphs::on ? 12 * count : 0);
    EXPECT_GT(fake_counts().sums, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(, RanksOnFakes, testing::Combine(testing::Values("glm_moe_dsa", "glm4_moe", "kimi_k2"), testing::Values(2, 4)),
                         [](const auto& parameter) {
                           return std::string(std::get<0>(parameter.param)) + "_among_" + std::to_string(std::get<1>(parameter.param));
                         });

// Steps that are looked into are not recorded, on no rank.
TEST(RanksOnFakeGpus, TapsOfTheFirstRankSeeTheValuesOfTheReference) {
  OnFakes fakes("tests/golden/glm_moe_dsa", 2, Graphs::on);
  const auto cases = read_reference("tests/golden/glm_moe_dsa/reference.safetensors", fakes.whole->config);
  ASSERT_TRUE(cases.ok());
  const auto model = fakes.model({.max_tokens = 64, .max_samples = 64, .max_context = 1100});
  for (const VerifyCase& result : verify(*model, *cases, {37})) {
    for (const VerifyRun& run : result.runs) {
      EXPECT_EQ(run.failure, "") << result.name;
      for (const double error : run.hidden_error) EXPECT_LE(error, 1e-3);
      EXPECT_GT(run.hidden_scale.back(), 0);
    }
  }
  EXPECT_GT(model->runner()->recorded_steps(), 0);
}

// Planning makes the first rank forget what it recorded; the others must not go on without it.
TEST(RanksOnFakeGpus, RecordTogetherAgainAfterOnePlannedAnew) {
  OnFakes fakes("tests/golden/glm4_moe", 2, Graphs::on);
  const auto model = fakes.model(kLimits);
  const std::vector<float> expected = logits_of(*model);
  model->runner()->plan(1, 100);
  EXPECT_EQ(logits_of(*model), expected);
  EXPECT_EQ(model->runner()->recording_failure(), "");
}

TEST(RanksOnFakeGpus, RunUnrecordedWhereRecordingFails) {
  OnFakes fakes("tests/golden/glm4_moe", 2, Graphs::on, {.refuses_capture = true, .count = 2});
  const auto model = fakes.model(kLimits);
  logits_of(*model);
  EXPECT_EQ(model->runner()->recorded_steps(), 0);
  EXPECT_NE(model->runner()->recording_failure().find("not permitted"), std::string::npos);
}

// One of the two fails at some step; the other one is waiting for its part of a sum.
TEST(RanksOnFakeGpus, AFailedGpuEndsRequestsWithItsReason) {
  constexpr EngineLimits kEngineLimits = {.max_context = 200, .cache_tokens = 800, .max_sequences = 4, .max_step_tokens = 32};
  for (const Graphs graphs : {Graphs::off, Graphs::on}) {
    for (const std::int64_t good_steps : {0, 1, 2, 5, 6, 7, 8}) {
      OnFakes fakes("tests/golden/glm4_moe", 2, graphs);
      Engine engine(fakes.model(step_limits(kEngineLimits)), kEngineLimits);
      ASSERT_TRUE(engine.status().ok());
      fake_fail_after(good_steps);
      Request request{.prompt = {5, 4, 3, 2, 1}, .max_tokens = 20, .ignore_eos = true};
      ASSERT_TRUE(engine.submit(request).ok());
      std::string error;
      while (!engine.idle()) {
        for (const TokenEvent& event : engine.step()) error = event.error;
      }
      EXPECT_NE(error.find("on cuda:"), std::string::npos) << error;
      EXPECT_NE(error.find("illegal memory access"), std::string::npos) << error;
      EXPECT_FALSE(engine.status().ok());
    }
  }
}

TEST(RanksOnFakeGpus, ATiedHeadIsUploadedOnceAsTheEmbedding) {
  auto opened = open_model("tests/golden/glm4_moe");
  ASSERT_TRUE(opened.ok());
  Model& whole = **opened;
  whole.config.tie_word_embeddings = true;
  whole.weights.lm_head = whole.weights.embed;
  const auto share = share_of(whole, {1, 2});
  ASSERT_TRUE(share.ok());
  const DeviceBackend* backend = fake_backend();
  BackendMemory memory(*backend, 0, (*backend->devices())[0]);
  ThreadPool pool(1);
  const auto weights = upload_weights(**share, memory, pool, {});
  ASSERT_TRUE(weights.ok());
  const std::int64_t row_bytes = whole.weights.embed.cols * 2;  // BF16
  ASSERT_EQ(whole.weights.embed.format, QuantFormat::bf16);
  EXPECT_EQ(weights->lm_head.rows, 160);
  EXPECT_EQ(weights->lm_head.data, weights->embed.data + 160 * row_bytes);
}

TEST(RanksOnFakeGpus, TooLittleMemoryOfOneRankIsNamed) {
  std::int64_t weights = 0;
  {
    OnFakes fakes("tests/golden/glm4_moe", 2, Graphs::off);
    for (const auto& share : fakes.shares) weights += upload_bytes(*share);
  }
  OnFakes fakes("tests/golden/glm4_moe", 2, Graphs::off, {.memory_bytes = weights + 1000, .count = 2});
  const auto model = fakes.model(kLimits);
  ASSERT_FALSE(model->status().ok());
  EXPECT_NE(model->status().error().what.find("on cuda:"), std::string::npos) << model->status().error().what;
  EXPECT_NE(model->status().error().what.find("GB are free"), std::string::npos) << model->status().error().what;
}

}  // namespace
}  // namespace reckoner
