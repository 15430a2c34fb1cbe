// The engine over a fake model: what requests ask for, caching, memory, fairness.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/fake_model_test_support.h"

namespace reckoner {
namespace {

const EngineLimits kLimits{.max_context = 512, .cache_tokens = 2048, .max_sequences = 4, .max_step_tokens = 32, .prompt_logprob_rows = 5};

Engine fake_engine(const EngineLimits& limits) { return Engine(std::make_unique<FakeModel>(limits.max_step_tokens), limits); }

std::vector<std::int32_t> prompt_of(std::int64_t length, std::int32_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < length; ++i)
    tokens.push_back(static_cast<std::int32_t>((i * i * 7 + i * (seed + 3) + seed * 11) % kFakeVocab));
  return tokens;
}

Request greedy(std::vector<std::int32_t> prompt, std::int64_t max_tokens) {
  return {.prompt = std::move(prompt), .sampling = {.temperature = 0}, .max_tokens = max_tokens};
}

void expect_sound(const Engine& engine) {
  const Status sound = check_invariants(engine);
  ASSERT_TRUE(sound.ok()) << sound.error().what;
}

void take(std::map<std::int64_t, Answer>& answers, TokenEvent event) {
  Answer& answer = answers[event.request];
  EXPECT_EQ(answer.finish, FinishReason::none) << "an event after the end of " << event.request;
  if (event.token >= 0) {
    answer.tokens.push_back(event.token);
    answer.logprobs.push_back(event.logprob);
    answer.cached_tokens = event.cached_tokens;
  }
  if (!event.prompt_logprobs.empty()) answer.prompt_logprobs = std::move(event.prompt_logprobs);
  answer.finish = event.finish;
  answer.error = event.error;
}

void take_step(Engine& engine, std::map<std::int64_t, Answer>& answers) {
  for (TokenEvent& event : engine.step()) take(answers, std::move(event));
  expect_sound(engine);
}

std::map<std::int64_t, Answer> run(Engine& engine, std::map<std::int64_t, Answer> answers = {}) {
  for (int step = 0; !engine.idle() && step < 20000; ++step) take_step(engine, answers);
  EXPECT_TRUE(engine.idle());
  return answers;
}

Answer answer_to(Engine& engine, Request request) {
  const Result<std::int64_t> number = engine.submit(std::move(request));
  EXPECT_TRUE(number.ok()) << number.error().what;
  return number.ok() ? run(engine)[*number] : Answer{};
}

TEST(EngineCache, FindsWholePagesAndComputesTheLastToken) {
  Engine engine = fake_engine(kLimits);
  for (const std::int64_t length : {63, 64, 65, 128, 129, 200}) {
    const Request request = greedy(prompt_of(length, static_cast<std::int32_t>(length)), 5);
    const Answer cold = answer_to(engine, request);
    const Answer warm = answer_to(engine, request);
    EXPECT_EQ(cold.cached_tokens, 0) << length;
    EXPECT_EQ(warm.cached_tokens, (length - 1) / kPageTokens * kPageTokens) << length;
    EXPECT_EQ(cold.tokens, predict(request, engine.longest_request()).tokens);
    EXPECT_EQ(warm.tokens, cold.tokens);
  }
  // A conversation goes on: the answer's tokens are in the cache too.
  Request request = greedy(prompt_of(100, 1), 60);
  const Answer first = answer_to(engine, request);
  request.prompt.insert(request.prompt.end(), first.tokens.begin(), first.tokens.end());
  EXPECT_EQ(answer_to(engine, request).cached_tokens, 128);
}

TEST(EngineCache, RequestsThatComeTogetherComputeTheirBeginningOnce) {
  Engine engine = fake_engine(kLimits);
  for (std::int32_t tail = 0; tail < 4; ++tail) {
    Request request = greedy(prompt_of(256, 1), 4);
    request.prompt.push_back(tail);
    ASSERT_TRUE(engine.submit(request).ok());
  }
  const auto answers = run(engine);
  for (const auto& [number, answer] : answers) {
    Request request = greedy(prompt_of(256, 1), 4);
    request.prompt.push_back(static_cast<std::int32_t>(number));
    EXPECT_EQ(answer.tokens, predict(request, 512).tokens);
  }
  EXPECT_EQ(engine.stats().computed_tokens, 256 + 4 + 4 * 3);  // the beginning, each one's last prompt token, all outputs but the last
}

TEST(EngineCache, FlushForgetsAndRunningRequestsGoOn) {
  Engine engine = fake_engine(kLimits);
  const Request request = greedy(prompt_of(200, 3), 30);
  ASSERT_TRUE(engine.submit(request).ok());
  std::map<std::int64_t, Answer> answers;
  for (int step = 0; step < 12; ++step) take_step(engine, answers);
  engine.flush();
  expect_sound(engine);
  answers = run(engine, std::move(answers));
  EXPECT_EQ(answers.at(0).tokens, predict(request, 512).tokens);
  EXPECT_EQ(engine.stats().free_pages, engine.stats().pages);
  EXPECT_EQ(answer_to(engine, request).cached_tokens, 0);
  EXPECT_EQ(answer_to(engine, request).cached_tokens, 192);
}

// Also where the bad row was not noticed before its page was whole and others had taken it up.
TEST(EngineCache, KeepsNothingOfAFailedRequest) {
  for (const std::int32_t place : {FakeModel::kAtOnce, FakeModel::kLater}) {
    Engine engine = fake_engine(kLimits);
    const Request request = greedy(prompt_of(200, 4), 10);
    engine.inject = {.request = 0, .position = 70, .place = place};
    const Answer failed = answer_to(engine, request);
    EXPECT_EQ(failed.finish, FinishReason::error);
    EXPECT_NE(failed.error.find("not finite"), std::string::npos) << failed.error;
    EXPECT_EQ(engine.stats().free_pages, engine.stats().pages);
    EXPECT_GE(engine.stats().non_finite_rows, 1);
    const Answer again = answer_to(engine, request);
    EXPECT_EQ(again.cached_tokens, 0);
    EXPECT_EQ(again.tokens, predict(request, 512).tokens);
  }
}

TEST(EngineMemory, RefusesWhatCanNeverFit) {
  EngineLimits limits = kLimits;
  limits.cache_tokens = 128;
  Engine engine = fake_engine(limits);
  EXPECT_EQ(engine.submit(greedy(prompt_of(100, 1), 29)).error().what,
            "prompt and max_tokens: expected at most 128 tokens together, found 100 + 29");
  EXPECT_TRUE(engine.submit(greedy(prompt_of(100, 1), 28)).ok());
  EXPECT_EQ(run(engine).at(0).tokens.size(), 28u);
}

// "As many as the context holds" is a limit, not a reservation: four such requests run at a time in a cache that holds one of them.
TEST(EngineMemory, TheDefaultLimitReservesNothing) {
  EngineLimits limits = kLimits;
  limits.cache_tokens = 512;
  Engine engine = fake_engine(limits);
  for (std::int32_t i = 0; i < 4; ++i) ASSERT_TRUE(engine.submit(greedy(prompt_of(10, i), 0)).ok());
  std::map<std::int64_t, Answer> answers;
  take_step(engine, answers);
  take_step(engine, answers);
  EXPECT_EQ(engine.stats().running, 4);
  answers = run(engine, std::move(answers));
  EXPECT_GT(engine.stats().preemptions, 0);
  for (std::int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answers.at(i).tokens.size(), 502u);
    EXPECT_EQ(answers.at(i).tokens, predict(greedy(prompt_of(10, i), 0), 512).tokens) << i;
  }
}

// The oldest request is never put back, so whoever waits longest is always next.
TEST(EngineMemory, TheOldestNeverLosesItsPages) {
  EngineLimits limits = kLimits;
  limits.cache_tokens = 512;
  Engine engine = fake_engine(limits);
  for (std::int32_t i = 0; i < 4; ++i) ASSERT_TRUE(engine.submit(greedy(prompt_of(60, i), 400)).ok());
  std::vector<std::int64_t> ended;
  std::int64_t tokens_of_oldest = 0;
  std::int64_t steps = 0;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      tokens_of_oldest += event.request == 0 ? 1 : 0;
      if (event.finish != FinishReason::none) ended.push_back(event.request);
    }
    expect_sound(engine);
    // Its prompt has a quarter of the rows at least; from then on it has a token a step.
    EXPECT_GE(tokens_of_oldest, std::min<std::int64_t>(++steps - 10, 400)) << steps;
  }
  EXPECT_EQ(ended, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_GT(engine.stats().preemptions, 0);
}

TEST(EngineFairness, AShortPromptDoesNotWaitForALongOne) {
  EngineLimits limits = kLimits;
  limits.max_context = limits.cache_tokens = 20000;
  Engine engine = fake_engine(limits);
  ASSERT_TRUE(engine.submit(greedy(prompt_of(15000, 1), 1)).ok());
  engine.step();
  ASSERT_TRUE(engine.submit(greedy(prompt_of(20, 2), 1)).ok());
  const std::vector<TokenEvent> events = engine.step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].request, 1);
}

// Decoding requests get a token each step while a long prompt is read, and the long prompt gets on however many short ones come.
TEST(EngineFairness, NobodyStarves) {
  EngineLimits limits = kLimits;
  limits.max_context = limits.cache_tokens = 20000;
  Engine engine = fake_engine(limits);
  ASSERT_TRUE(engine.submit(greedy(prompt_of(10, 1), 5000)).ok());
  engine.step();
  ASSERT_TRUE(engine.submit(greedy(prompt_of(3000, 2), 1)).ok());
  std::int32_t number = 2;
  bool read = false;
  int steps = 0;
  for (; !read && steps < 1000; ++steps) {
    while (engine.stats().running + engine.stats().waiting < 5) ASSERT_TRUE(engine.submit(greedy(prompt_of(60, ++number), 1)).ok());
    bool decoded = false;
    for (const TokenEvent& event : engine.step()) {
      decoded = decoded || event.request == 0;
      read = read || event.request == 1;
    }
    EXPECT_TRUE(decoded) << steps;
  }
  EXPECT_TRUE(read);
  EXPECT_LE(steps, 3000 / ((32 - 3) / 4) + 2);  // a quarter of what up to three decoding requests leave
}

TEST(EngineRequest, EndsMinTokensAndIgnoreEos) {
  Engine engine = fake_engine(kLimits);
  Request request = greedy(prompt_of(9, 5), 40);
  const std::vector<std::int32_t> free = answer_to(engine, request).tokens;
  request.end_tokens = {free[3]};
  const Answer ended = answer_to(engine, request);
  EXPECT_EQ(ended.finish, FinishReason::stop);
  EXPECT_LE(ended.tokens.size(), 4u);
  EXPECT_EQ(ended.tokens.back(), free[3]);

  Request ignoring = request;
  ignoring.ignore_eos = true;
  EXPECT_EQ(answer_to(engine, ignoring).tokens, free);
  ignoring.stop_tokens = {free[3]};  // the user's own stop tokens still count
  EXPECT_EQ(answer_to(engine, ignoring).tokens, ended.tokens);

  request.min_tokens = 10;
  const Answer longer = answer_to(engine, request);
  EXPECT_GE(longer.tokens.size(), 10u);
  EXPECT_EQ(std::count(longer.tokens.begin(), longer.tokens.begin() + 10, free[3]), 0);
  EXPECT_EQ(longer.tokens, predict(request, 512).tokens);
  request.min_tokens = 41;
  EXPECT_EQ(engine.submit(request).error().what, "min_tokens: expected a number from 0 to 40, found 41");
}

TEST(EngineRequest, LogprobsOfOutputAndPrompt) {
  const Request plain = greedy(prompt_of(150, 6), 12);
  Request request = plain;
  request.logprobs = 3;
  request.prompt_logprobs = 2;
  Engine engine = fake_engine(kLimits);
  answer_to(engine, plain);  // fills the cache, which has no logprobs
  const std::int64_t other = *engine.submit(greedy(prompt_of(300, 7), 5));
  const std::int64_t number = *engine.submit(request);
  std::map<std::int64_t, Answer> answers;
  std::vector<std::vector<TokenLogprob>> tops;
  while (!engine.idle()) {
    for (TokenEvent& event : engine.step()) {
      if (event.request == number) tops.push_back(event.top_logprobs);
      take(answers, std::move(event));
    }
    expect_sound(engine);
  }
  EXPECT_EQ(answers.at(other).tokens, predict(greedy(prompt_of(300, 7), 5), 512).tokens);
  const Answer& answer = answers.at(number);
  std::vector<std::int32_t> tokens = request.prompt;
  tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  ASSERT_EQ(answer.prompt_logprobs.size(), request.prompt.size() - 1);
  ASSERT_EQ(answer.tokens.size(), 12u);
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    const std::vector<float> logits = FakeModel::logits_after(std::span(tokens).first(i));
    const double log_sum = log_sum_exp(logits);
    const bool in_prompt = i < request.prompt.size();
    const std::size_t output = i - request.prompt.size();
    const std::vector<TokenLogprob>& top = in_prompt ? answer.prompt_logprobs[i - 1].top : tops[output];
    const double logprob = in_prompt ? answer.prompt_logprobs[i - 1].logprob : answer.logprobs[output];
    EXPECT_EQ(logprob, logits[static_cast<std::size_t>(tokens[i])] - log_sum) << i;
    ASSERT_EQ(top.size(), in_prompt ? 2u : 3u);
    EXPECT_EQ(top[0].logprob, *std::max_element(logits.begin(), logits.end()) - log_sum) << i;
    EXPECT_GE(top[0].logprob, top[1].logprob);
  }
  EXPECT_EQ(answer.cached_tokens, 0) << "the rows of the prompt have to be computed for their logprobs";
}

TEST(EngineRequest, ConstraintsAreKept) {
  Engine engine = fake_engine(kLimits);
  std::vector<std::int64_t> numbers;
  for (std::int32_t i = 0; i < 6; ++i) {
    Request request{.prompt = prompt_of(20 + 30 * i, i), .sampling = {.seed = static_cast<std::uint64_t>(i)}, .max_tokens = 40};
    if (i % 2 == 0) request.constraint = std::make_shared<AlternatingConstraint>(i == 4 ? 100 : 17);
    numbers.push_back(*engine.submit(request));
  }
  const auto answers = run(engine);
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    const Answer& answer = answers.at(numbers[i]);
    EXPECT_EQ(answer.finish, i == 4 ? FinishReason::length : FinishReason::complete);
    EXPECT_EQ(answer.tokens.size(), i == 4 ? 40u : 17u);
    for (std::size_t t = 0; t < answer.tokens.size(); ++t) EXPECT_EQ(static_cast<std::size_t>(answer.tokens[t]) % 2, t % 2);
  }
}

class ClosedConstraint final : public TokenConstraint {
 public:
  void compute_mask(std::span<std::uint32_t> bits) override { std::fill(bits.begin(), bits.end(), 0u); }
  bool accept(std::int32_t) override { return true; }
  bool finished() override { return false; }
};

TEST(EngineRequest, AConstraintThatAllowsNothingIsAnError) {
  Engine engine = fake_engine(kLimits);
  Request request = greedy(prompt_of(20, 1), 5);
  request.constraint = std::make_shared<ClosedConstraint>();
  const Answer answer = answer_to(engine, request);
  EXPECT_EQ(answer.finish, FinishReason::error);
  EXPECT_EQ(answer.error, "the constraint allows no token after 0 tokens of output");
}

TEST(EngineRequest, RefusesValuesOutOfRange) {
  EngineLimits limits = kLimits;
  limits.prompt_logprob_rows = 0;
  Engine engine = fake_engine(limits);
  Request request = greedy(prompt_of(20, 1), 5);
  request.logprobs = kFakeVocab + 1;
  EXPECT_EQ(engine.submit(request).error().what, "logprobs: expected a number from 0 to 50, found 51");
  request.logprobs = 0;
  request.prompt_logprobs = 0;
  EXPECT_EQ(engine.submit(request).error().what, "prompt_logprobs: this engine was started without room for them");
  request.prompt_logprobs.reset();
  request.max_tokens = -1;
  EXPECT_EQ(engine.submit(request).error().what, "max_tokens: expected 0 or more, found -1");
}

TEST(EngineStatsTest, CountWhatHappened) {
  Engine engine = fake_engine(kLimits);
  const Request request = greedy(prompt_of(100, 8), 10);
  answer_to(engine, request);
  answer_to(engine, request);
  const std::int64_t cancelled = *engine.submit(request);
  engine.step();
  EXPECT_EQ(engine.stats().used_pages, 2);
  engine.cancel(cancelled);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.submitted, 3);
  EXPECT_EQ(stats.finished, 2);
  EXPECT_EQ(stats.cancelled, 1);
  EXPECT_EQ(stats.running + stats.waiting + stats.used_pages + stats.failed + stats.preemptions + stats.non_finite_rows, 0);
  EXPECT_EQ(stats.pages, 32);
  EXPECT_EQ(stats.cached_pages, 1);
  EXPECT_EQ(stats.free_pages, 31);
  EXPECT_EQ(stats.prompt_tokens, 200);
  EXPECT_EQ(stats.cached_tokens, 64);
  EXPECT_EQ(stats.generated_tokens, 20);
  EXPECT_EQ(stats.computed_tokens, 100 + 9 + 36 + 9 + 32);  // of the last one, a step
  std::int64_t counted = 0;
  for (const std::int64_t count : stats.step_times.counts) counted += count;
  EXPECT_EQ(counted, stats.steps);
  std::int64_t queued = 0;
  for (const std::int64_t count : stats.queue_times.counts) queued += count;
  EXPECT_EQ(queued, 3);
}

TEST(DurationHistogram, CountsByBounds) {
  DurationHistogram histogram;
  for (const double seconds : {0.0, 0.001, 0.0011, 59.0, 61.0}) histogram.add(seconds);
  EXPECT_EQ(histogram.counts.front(), 2);
  EXPECT_EQ(histogram.counts[1], 1);
  EXPECT_EQ(histogram.counts[13], 1);
  EXPECT_EQ(histogram.counts.back(), 1);
  EXPECT_DOUBLE_EQ(histogram.sum_s, 120.0021);
}

}  // namespace
}  // namespace reckoner
