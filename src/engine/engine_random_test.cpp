// The engine over a fake model, as users treat it: requests that come and go at random, in too little memory, for thousands of steps. After
// every step all invariants hold, and every answer is the one that the request would have had alone.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/fake_model_test_support.h"

namespace reckoner {
namespace {

struct Scenario {
  const char* name;
  EngineLimits limits;
  std::int64_t longest_prompt;
  std::int64_t longest_output;  // of requests that set max_tokens
  double arrivals;              // a step
  double cancels;
  double faults;
  double flushes;
};

class Users {
 public:
  Users(const Scenario& scenario, std::uint64_t seed)
      : scenario_(scenario), random_(seed), engine_(std::make_unique<FakeModel>(scenario.limits.max_step_tokens), scenario.limits) {}

  void run(int steps) {
    for (int step = 0; step < steps && !testing::Test::HasFatalFailure(); ++step) {
      if (open_.size() < 20 && chance(scenario_.arrivals)) arrive();
      if (!open_.empty() && chance(scenario_.cancels)) cancel();
      if (!open_.empty() && chance(scenario_.faults)) break_one();
      if (chance(scenario_.flushes)) engine_.flush();
      take_step();
    }
    // Everything that is left ends, within what its tokens can take even when each is recomputed many times.
    for (int step = 0; step < 20000 && !engine_.idle() && !testing::Test::HasFatalFailure(); ++step) take_step();
    ASSERT_TRUE(engine_.idle());
    EXPECT_TRUE(open_.empty()) << open_.size() << " requests were lost";
    EXPECT_EQ(engine_.stats().used_pages, 0);
    engine_.flush();
    EXPECT_EQ(engine_.stats().free_pages, engine_.stats().pages);
  }
  const Engine& engine() const { return engine_; }
  std::int64_t failed() const { return failed_; }

 private:
  struct Open {
    Request request;
    Answer expected;
    std::size_t received = 0;
    bool may_fail = false;
  };

  std::int64_t below(std::int64_t end) { return std::uniform_int_distribution<std::int64_t>(0, end - 1)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }

  // Prompts begin like one of three texts for a while, and go on in their own way.
  Request make_request() {
    Request request;
    const std::int64_t length = 1 + below(scenario_.longest_prompt);
    const std::int64_t common = chance(0.7) ? length - below(length / 2 + 1) : 0;
    const std::int64_t text = below(3);
    for (std::int64_t i = 0; i < length; ++i)
      request.prompt.push_back(static_cast<std::int32_t>(i < common ? (i * i + 13 * text) % kFakeVocab : below(kFakeVocab)));
    request.sampling = {.temperature = chance(0.5) ? 0.0 : 1.0, .seed = random_()};
    if (chance(0.2)) request.sampling.frequency_penalty = 0.5;
    if (chance(0.6)) request.max_tokens = 1 + below(scenario_.longest_output);
    if (request.max_tokens == 0) request.end_tokens = {1, 2};
    if (chance(0.1)) request.prompt_logprobs = 1;
    return request;
  }

  void arrive() {
    Open open{.request = make_request()};
    open.expected = predict(open.request, engine_.longest_request());
    const Result<std::int64_t> number = engine_.submit(open.request);
    ASSERT_TRUE(number.ok()) << number.error().what;
    open_.emplace(*number, std::move(open));
  }
  std::map<std::int64_t, Open>::iterator any() { return std::next(open_.begin(), below(static_cast<std::int64_t>(open_.size()))); }
  void cancel() {
    const auto victim = any();
    engine_.cancel(victim->first);
    open_.erase(victim);
  }
  void break_one() {
    const auto victim = any();
    const auto tokens = static_cast<std::int64_t>(victim->second.request.prompt.size() + victim->second.expected.tokens.size());
    engine_.inject = {.request = victim->first, .position = below(tokens), .place = FakeModel::kAtOnce};
    victim->second.may_fail = true;
  }

  void take_step() {
    for (const TokenEvent& event : engine_.step()) take(event);
    const Status sound = check_invariants(engine_);
    ASSERT_TRUE(sound.ok()) << sound.error().what << " after step " << engine_.stats().steps;
  }

  void take(const TokenEvent& event) {
    const auto found = open_.find(event.request);
    ASSERT_NE(found, open_.end()) << "an event of " << event.request << ", which ended or was cancelled";
    Open& open = found->second;
    if (event.finish == FinishReason::error) {
      ASSERT_TRUE(open.may_fail) << event.request << ": " << event.error;
      ++failed_;
      open_.erase(found);
      return;
    }
    ASSERT_LT(open.received, open.expected.tokens.size()) << event.request;
    ASSERT_EQ(event.token, open.expected.tokens[open.received]) << event.request << ", token " << open.received;
    const bool reports = open.received == 0 && open.request.prompt_logprobs;
    ASSERT_EQ(event.prompt_logprobs.size(), reports ? open.request.prompt.size() - 1 : 0) << event.request;
    ++open.received;
    const bool last = open.received == open.expected.tokens.size();
    ASSERT_EQ(event.finish, last ? open.expected.finish : FinishReason::none) << event.request << ", token " << open.received;
    if (last) open_.erase(found);
  }

  Scenario scenario_;
  std::mt19937_64 random_;
  Engine engine_;
  std::map<std::int64_t, Open> open_;
  std::int64_t failed_ = 0;
};

const Scenario kScenarios[] = {
    {.name = "roomy",
     .limits = {.max_context = 512, .cache_tokens = 8192, .max_sequences = 6, .max_step_tokens = 40, .prompt_logprob_rows = 7},
     .longest_prompt = 300,
     .longest_output = 60,
     .arrivals = 0.2,
     .cancels = 0.01,
     .faults = 0.01,
     .flushes = 0.001},
    {.name = "tight",
     .limits = {.max_context = 512, .cache_tokens = 640, .max_sequences = 8, .max_step_tokens = 24, .prompt_logprob_rows = 3},
     .longest_prompt = 200,
     .longest_output = 200,
     .arrivals = 0.15,
     .cancels = 0.01,
     .faults = 0.01,
     .flushes = 0.002},
    {.name = "one_request_fills_it",
     .limits = {.max_context = 320, .cache_tokens = 320, .max_sequences = 5, .max_step_tokens = 9, .prompt_logprob_rows = 1},
     .longest_prompt = 180,
     .longest_output = 140,
     .arrivals = 0.3,
     .cancels = 0.005,
     .faults = 0.005,
     .flushes = 0.002},
};

class EngineRandom : public testing::TestWithParam<std::tuple<Scenario, std::uint64_t>> {};

TEST_P(EngineRandom, EveryAnswerIsTheOneAlone) {
  const auto& [scenario, seed] = GetParam();
  Users users(scenario, seed);
  users.run(2500);
  // The scenario is worth something only if all this happened.
  const EngineStats stats = users.engine().stats();
  EXPECT_GT(stats.finished, 50);
  EXPECT_GT(stats.cached_tokens, 0);
  EXPECT_GT(stats.cancelled, 0);
  EXPECT_GT(stats.failed, 0);
  EXPECT_EQ(stats.failed, users.failed());
  EXPECT_TRUE(stats.preemptions > 0 || scenario.limits.cache_tokens > 640);
}

std::string name_of(const testing::TestParamInfo<EngineRandom::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(, EngineRandom, testing::Combine(testing::ValuesIn(kScenarios), testing::Values(1, 2, 3)), name_of);

}  // namespace
}  // namespace reckoner
