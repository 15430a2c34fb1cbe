// The engine on a golden model: many requests at a time, chunked prompts, shared pages, too little memory, the guard.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "kernels/cpu/catalogue.h"

namespace reckoner {
namespace {

struct Answer {
  std::vector<std::int32_t> tokens;
  FinishReason finish = FinishReason::none;
  std::string error;
};

class EngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = open_model("tests/golden/glm_moe_dsa");
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    model_ = std::move(opened).value().release();
  }
  static void TearDownTestSuite() { delete model_; }

  static Engine engine(const EngineLimits& limits, ThreadPool& pool) {
    return Engine(*model_, cpu_catalogue(), detect_cpu(), pool, Precision::exact, limits);
  }

  // A prompt of `length` tokens that no other number has.
  static std::vector<std::int32_t> prompt(std::int32_t number, std::int32_t length) {
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < length; ++i) ids.push_back((number * 37 + i * (11 + number)) % 320);
    return ids;
  }

  static Request greedy(std::vector<std::int32_t> ids, std::int64_t max_tokens) {
    Request request;
    request.prompt = std::move(ids);
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    return request;
  }

  static std::map<std::int64_t, Answer> run(Engine& engine) {
    std::map<std::int64_t, Answer> answers;
    for (int step = 0; !engine.idle() && step < 10000; ++step) {
      const std::vector<TokenEvent> events = engine.step();
      const Status sound = check_invariants(engine);
      EXPECT_TRUE(sound.ok()) << sound.error().what;
      for (const TokenEvent& event : events) {
        Answer& answer = answers[event.request];
        EXPECT_EQ(answer.finish, FinishReason::none) << "an event after the end";
        if (event.token >= 0) answer.tokens.push_back(event.token);
        answer.finish = event.finish;
        answer.error = event.error;
      }
    }
    EXPECT_TRUE(engine.idle());
    return answers;
  }

  static inline Model* model_ = nullptr;
};

const EngineLimits kLimits{.max_context = 256, .cache_tokens = 2048, .max_sequences = 4, .max_step_tokens = 48};

// What a request answers may depend on nothing but itself: not on who else is served, the chunks its prompt is read in, or the threads.
TEST_F(EngineTest, BatchedEqualsSingleTokenForToken) {
  const std::vector<std::int32_t> lengths = {1, 5, 63, 64, 65, 100, 30, 2, 17};
  std::vector<Answer> single;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    ThreadPool pool(1);
    Engine alone = engine({.max_context = 256, .cache_tokens = 256, .max_sequences = 1, .max_step_tokens = 128}, pool);
    ASSERT_TRUE(alone.submit(greedy(prompt(static_cast<std::int32_t>(i), lengths[i]), 20)).ok());
    single.push_back(run(alone).at(0));
    EXPECT_EQ(single.back().tokens.size(), 20u);
    EXPECT_EQ(single.back().finish, FinishReason::length);
  }
  ThreadPool pool(3);
  Engine together = engine(kLimits, pool);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    ASSERT_TRUE(together.submit(greedy(prompt(static_cast<std::int32_t>(i), lengths[i]), 20)).ok());
  }
  const auto answers = run(together);
  ASSERT_EQ(answers.size(), lengths.size());
  for (const auto& [number, answer] : answers) EXPECT_EQ(answer.tokens, single[static_cast<std::size_t>(number)].tokens) << number;
  together.flush();
  EXPECT_EQ(together.cache().free_pages(), together.cache().pages());
}

// What an answer may not depend on either: pages of other requests that it stands on, and being interrupted for want of memory.
TEST_F(EngineTest, CachedAndPreemptedEqualsSingleTokenForToken) {
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < 6; ++i) {
    std::vector<std::int32_t> ids = prompt(i % 2, 64 * (i % 2) + 30);  // two texts that three requests each begin with
    const std::vector<std::int32_t> own = prompt(i + 20, 5 + 9 * i);
    ids.insert(ids.end(), own.begin(), own.end());
    requests.push_back(greedy(std::move(ids), 70));
  }
  requests.push_back(requests[5]);
  std::vector<Answer> single;
  for (const Request& request : requests) {
    ThreadPool pool(1);
    Engine alone = engine({.max_context = 256, .cache_tokens = 256, .max_sequences = 1, .max_step_tokens = 64}, pool);
    ASSERT_TRUE(alone.submit(request).ok());
    single.push_back(run(alone).at(0));
  }
  ThreadPool pool(2);
  Engine tight = engine({.max_context = 256, .cache_tokens = 320, .max_sequences = 4, .max_step_tokens = 40}, pool);
  for (int round = 0; round < 2; ++round) {
    for (const Request& request : requests) ASSERT_TRUE(tight.submit(request).ok());
    for (const auto& [number, answer] : run(tight)) {
      const Answer& expected = single[static_cast<std::size_t>(number) % requests.size()];
      EXPECT_EQ(answer.tokens, expected.tokens) << number;
      EXPECT_EQ(answer.finish, FinishReason::length) << answer.error;
    }
  }
  EXPECT_GT(tight.stats().cached_tokens, 0);
  EXPECT_GT(tight.stats().preemptions, 0);
}

TEST_F(EngineTest, StopsAtStopTokensAndLimits) {
  ThreadPool pool(1);
  Engine engine = EngineTest::engine(kLimits, pool);
  ASSERT_TRUE(engine.submit(greedy(prompt(1, 9), 12)).ok());
  const std::vector<std::int32_t> tokens = run(engine).at(0).tokens;
  Request with_stop = greedy(prompt(1, 9), 12);
  with_stop.stop_tokens = {tokens[3]};
  ASSERT_TRUE(engine.submit(with_stop).ok());
  const Answer stopped = run(engine).at(1);
  EXPECT_EQ(stopped.finish, FinishReason::stop);
  EXPECT_EQ(stopped.tokens.back(), tokens[3]);
  EXPECT_LE(stopped.tokens.size(), 4u);
}

TEST_F(EngineTest, CancelGivesEverythingBack) {
  ThreadPool pool(1);
  Engine engine = EngineTest::engine(kLimits, pool);
  for (std::int32_t i = 0; i < 6; ++i) ASSERT_TRUE(engine.submit(greedy(prompt(i, 20), 50)).ok());
  for (int step = 0; step < 5; ++step) engine.step();
  for (std::int64_t number = 0; number < 6; ++number) engine.cancel(number);
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(engine.cache().free_pages(), engine.cache().pages());
}

TEST_F(EngineTest, RefusesWhatCannotBeServed) {
  ThreadPool pool(1);
  Engine engine = EngineTest::engine(kLimits, pool);
  EXPECT_EQ(engine.submit(greedy({}, 0)).error().what, "prompt: expected at least one token, found none");
  EXPECT_EQ(engine.submit(greedy({320}, 0)).error().what, "prompt: expected token ids below 320, found 320");
  EXPECT_EQ(engine.submit(greedy(prompt(0, 250), 7)).error().what,
            "prompt and max_tokens: expected at most 256 tokens together, found 250 + 7");
  EXPECT_EQ(engine.submit(greedy(prompt(0, 256), 0)).error().what,
            "prompt and max_tokens: expected at most 256 tokens together, found 256 + 1");
  EXPECT_TRUE(engine.submit(greedy(prompt(0, 250), 6)).ok());
}

// A NaN anywhere ends the request it is in, with its place named, and leaves the others exactly as they would have been.
// The ranges are those of the residual stream, which the taps show: behind each layer's attention-norm input, in the last step.
TEST_F(EngineTest, MeasuresTheValuesBehindEachLayer) {
  ThreadPool pool(2);
  Engine engine = EngineTest::engine(kLimits, pool);
  std::map<std::int64_t, ValueRange> expected;  // by GuardPlace
  engine.runner().taps = [&](std::string_view name, std::int64_t layer, const Tensor& value) {
    if (name != "hidden" || layer == model_->config.num_hidden_layers) return;  // the last is normalised
    ValueRange range{.low = std::numeric_limits<float>::infinity(), .high = 0};
    for (std::int64_t row = 0; row < value.dim(0); ++row) {
      double squares = 0;
      for (std::int64_t i = 0; i < value.dim(1); ++i) squares += std::pow(value.f32()[row * value.dim(1) + i], 2);
      const auto rms = static_cast<float>(std::sqrt(squares / static_cast<double>(value.dim(1))));
      range = {.low = std::min(range.low, rms), .high = std::max(range.high, rms)};
    }
    expected[layer == 0 ? GuardPlace::kEmbedding : GuardPlace::feed_forward(layer - 1)] = range;
  };
  ASSERT_TRUE(engine.submit(greedy(prompt(1, 40), 3)).ok());
  engine.step();
  const EngineStats stats = engine.stats();
  ASSERT_EQ(static_cast<std::int64_t>(stats.rms.size()), GuardPlace::count(model_->config.num_hidden_layers));
  ASSERT_EQ(static_cast<std::int64_t>(expected.size()), model_->config.num_hidden_layers);
  for (const auto& [place, range] : expected) {
    const ValueRange& found = stats.rms[static_cast<std::size_t>(place)];
    EXPECT_NEAR(found.low, range.low, 1e-4f * range.low) << GuardPlace::name(static_cast<std::int32_t>(place));
    EXPECT_NEAR(found.high, range.high, 1e-4f * range.high) << GuardPlace::name(static_cast<std::int32_t>(place));
  }
}

TEST_F(EngineTest, TheGuardEndsOneRequestAndNamesThePlace) {
  const struct {
    std::int32_t place;
    const char* name;
  } places[] = {{GuardPlace::attention(0), "layer 0, attention"},
                {GuardPlace::feed_forward(1), "layer 1, feed-forward"},
                {GuardPlace::attention(3), "layer 3, attention"},
                {GuardPlace::feed_forward(3), "layer 3, feed-forward"}};
  ThreadPool pool(2);
  Engine healthy = engine(kLimits, pool);
  for (std::int32_t i = 0; i < 3; ++i) ASSERT_TRUE(healthy.submit(greedy(prompt(i, 10), 10)).ok());
  const auto expected = run(healthy);
  for (const auto& [place, name] : places) {
    for (const std::int64_t position : {4, 9, 13}) {  // in the prompt, at its end, while decoding
      Engine engine = EngineTest::engine(kLimits, pool);
      engine.inject = {.request = 1, .position = position, .place = place};
      for (std::int32_t i = 0; i < 3; ++i) ASSERT_TRUE(engine.submit(greedy(prompt(i, 10), 10)).ok());
      const auto answers = run(engine);
      EXPECT_EQ(answers.at(1).finish, FinishReason::error);
      EXPECT_NE(answers.at(1).error.find(name), std::string::npos) << answers.at(1).error;
      EXPECT_NE(answers.at(1).error.find("step"), std::string::npos);
      for (const std::int64_t other : {0, 2}) {
        EXPECT_EQ(answers.at(other).tokens, expected.at(other).tokens) << name << " disturbed request " << other;
        EXPECT_EQ(answers.at(other).finish, FinishReason::length);
      }
      EXPECT_EQ(engine.cache().free_pages(), engine.cache().pages());
    }
  }
}

}  // namespace
}  // namespace reckoner
