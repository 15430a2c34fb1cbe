// An engine over ranks: the answers of one over the undivided model, and an error, not a wait, when a rank fails.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/engine.h"
#include "engine/single_sequence.h"
#include "support/host_ranks.h"

namespace reckoner {
namespace {

constexpr EngineLimits kLimits = {
    .max_context = 160, .cache_tokens = 448, .max_sequences = 4, .max_step_tokens = 24, .prompt_logprob_rows = 8};

struct Answer {
  std::vector<std::int32_t> tokens = {};
  std::vector<double> logprobs = {};
  FinishReason finish = FinishReason::none;
  std::string error = {};
};

// Requests of all lengths, greedy and drawn, some with a common start.
std::vector<Request> some_requests(std::int64_t vocab, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < 10; ++i) {
    Request request;
    const std::int64_t length = 1 + static_cast<std::int64_t>(random() % 100);
    for (std::int64_t at = 0; at < length; ++at)
      request.prompt.push_back(
          static_cast<std::int32_t>(i % 3 == 0 ? (at * 7) % vocab : static_cast<std::int64_t>(random() % 1000) % vocab));
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    request.sampling.seed = random();
    request.max_tokens = 1 + static_cast<std::int64_t>(random() % 24);
    request.ignore_eos = true;
    request.logprobs = 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Answer> answers_of(Engine& engine, const std::vector<Request>& requests) {
  std::map<std::int64_t, Answer> answers;
  for (const Request& request : requests) {
    const auto number = engine.submit(request);
    EXPECT_TRUE(number.ok());
    answers[*number] = {};
  }
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      Answer& answer = answers[event.request];
      if (event.token >= 0) answer.tokens.push_back(event.token);
      if (event.token >= 0) answer.logprobs.push_back(event.logprob);
      answer.finish = event.finish;
      answer.error = event.error;
    }
    const Status held = check_invariants(engine);
    EXPECT_TRUE(held.ok()) << (held.ok() ? "" : held.error().what);
  }
  std::vector<Answer> all;
  for (auto& [number, answer] : answers) all.push_back(std::move(answer));
  return all;
}

using DividedModel = std::pair<const char*, int>;
class RankEngine : public testing::TestWithParam<DividedModel> {};

TEST_P(RankEngine, AnswersAsTheUndividedModel) {
  const auto& [name, count] = GetParam();
  HostRanks ranks(std::string("tests/golden/") + name, count);
  const std::vector<Request> requests = some_requests(ranks.whole->config.vocab_size, 11);
  const DeviceInfo device = limited_to(detect_cpu(), "avx2");
  Engine alone(*ranks.whole, cpu_catalogue(), device, ranks.pool, Precision::exact, kLimits);
  Engine together(ranks.model(step_limits(kLimits), device), kLimits);
  EXPECT_EQ(together.ranks(), count);
  ASSERT_TRUE(together.status().ok());
  const std::vector<Answer> expected = answers_of(alone, requests);
  const std::vector<Answer> found = answers_of(together, requests);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    EXPECT_EQ(found[i].finish, expected[i].finish) << i;
    for (std::size_t at = 0; at < expected[i].logprobs.size(); ++at) EXPECT_NEAR(found[i].logprobs[at], expected[i].logprobs[at], 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(, RankEngine,
                         testing::Values(DividedModel{"glm_moe_dsa", 2}, DividedModel{"glm4_moe", 4}, DividedModel{"kimi_k2", 2}),
                         [](const auto& parameter) {
                           return std::string(parameter.param.first) + "_among_" + std::to_string(parameter.param.second);
                         });

TEST(RankEngineGuard, ABadRowEndsItsOwnRequestOnlyAndIsNamed) {
  HostRanks ranks("tests/golden/glm_moe_dsa", 2);
  Engine engine(ranks.model(step_limits(kLimits)), kLimits);
  engine.inject = {.request = 1, .position = 3, .place = GuardPlace::feed_forward(2)};
  std::vector<Request> requests(2);
  for (Request& request : requests) request = {.prompt = {1, 2, 3, 4, 5, 6}, .max_tokens = 4, .ignore_eos = true};
  requests[1].prompt[0] = 9;
  const std::vector<Answer> answers = answers_of(engine, requests);
  EXPECT_EQ(answers[0].finish, FinishReason::length);
  EXPECT_EQ(answers[1].finish, FinishReason::error);
  EXPECT_NE(answers[1].error.find("layer 2, feed-forward"), std::string::npos) << answers[1].error;
}

// A rank that gives up in the middle of a step: the others wait for its part of a sum.
class FailingRank : public testing::TestWithParam<int> {};

TEST_P(FailingRank, EndsTheStepAndAllLaterOnesWithAnError) {
  const int failing = GetParam();
  HostRanks ranks("tests/golden/glm4_moe", 2);
  auto model = ranks.model(step_limits(kLimits));
  TensorParallelModel& parallel = *model;
  Engine engine(std::move(model), kLimits);
  std::int64_t seen = 0;
  parallel.runner()->taps = [&](std::string_view name, std::int64_t layer, const Tensor&) {
    if (name == "hidden" && layer == 2 && ++seen == 3) parallel.communicator(failing).cancel({"rank 1: it is on fire"});
  };
  const std::vector<Request> requests(2, {.prompt = {1, 2, 3, 4, 5, 6}, .max_tokens = 10, .ignore_eos = true});
  for (const Answer& answer : answers_of(engine, requests)) {
    EXPECT_EQ(answer.finish, FinishReason::error);
    EXPECT_NE(answer.error.find("rank 1: it is on fire"), std::string::npos) << answer.error;
    EXPECT_GT(answer.tokens.size(), 0u) << "the steps before were good";
  }
  EXPECT_TRUE(engine.stats().device_failed);
  EXPECT_FALSE(engine.status().ok());
  for (const Answer& answer : answers_of(engine, requests)) EXPECT_NE(answer.error.find("on fire"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(, FailingRank, testing::Values(0, 1), testing::PrintToStringParamName());

TEST(TensorParallelModel, DividesTheThreadsAndGivesEachRankOne) {
  HostRanks ranks("tests/golden/glm4_moe", 4);  // with a pool of 4
  EXPECT_EQ(ranks.model(step_limits(kLimits))->runner()->ops().pool().threads(), 1);
  ThreadPool seven(7);
  auto communicators = thread_communicators(4);
  std::vector<RankParts> parts;
  for (std::size_t rank = 0; rank < 4; ++rank)
    parts.push_back({.share = ranks.shares[rank].get(),
                     .weights = &ranks.shares[rank]->weights,
                     .device = {.info = detect_cpu(), .catalogue = cpu_catalogue()},
                     .communicator = std::move(communicators[rank]),
                     .name = "rank"});
  TensorParallelModel model(std::move(parts), seven, Precision::exact, {.max_tokens = 2, .max_samples = 2, .max_context = 64});
  EXPECT_EQ(model.pool(), &seven);
  EXPECT_EQ(model.runner()->ops().pool().threads(), 1);
  EXPECT_EQ(model.cache_layout().keys.front().row_elements, 32) << "a rank keeps its own heads";
}

}  // namespace
}  // namespace reckoner
