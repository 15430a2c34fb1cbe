#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <utility>

namespace reckoner {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f};

std::int32_t one(const SamplingParams& params, const TokenCounts& counts = {}, std::uint64_t draw = 0) {
  return Sampler().sample(kLogits, params, counts, draw).value();
}

std::set<std::int32_t> possible(SamplingParams params, const TokenCounts& counts = {}) {
  std::set<std::int32_t> seen;
  for (std::uint64_t draw = 0; draw < 2000; ++draw) seen.insert(one(params, counts, draw));
  return seen;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestOfEquals) { EXPECT_EQ(one({.temperature = 0}), 1); }

TEST(Sampler, LogprobIsThatOfTheModel) {
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(static_cast<double>(logit));
  const double log_sum = log_sum_exp(kLogits);
  EXPECT_NEAR(logprob_of(kLogits, log_sum, 1), 3.0 - std::log(sum), 1e-9);
  const std::vector<TokenLogprob> top = top_logprobs(kLogits, log_sum, 3);
  ASSERT_EQ(top.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(top[i].token, (std::vector<std::int32_t>{1, 3, 2})[i]);
    EXPECT_NEAR(top[i].logprob, (std::vector<double>{3, 3, 2})[i] - std::log(sum), 1e-9);
  }
  EXPECT_EQ(top_logprobs(kLogits, log_sum, 9).size(), kLogits.size());
}

// Frequencies of 20,000 draws against the softmax, within five standard deviations.
TEST(Sampler, DrawsFollowTheSoftmax) {
  constexpr int kDraws = 20000;
  std::vector<int> count(kLogits.size(), 0);
  Sampler sampler;
  for (std::uint64_t draw = 0; draw < kDraws; ++draw)
    ++count[static_cast<std::size_t>(sampler.sample(kLogits, {.temperature = 2, .seed = 5}, {}, draw).value())];
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(logit / 2);
  for (std::size_t i = 0; i < kLogits.size(); ++i) {
    const double p = std::exp(kLogits[i] / 2) / sum;
    EXPECT_NEAR(count[i], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p))) << i;
  }
}

TEST(Sampler, TheSameSeedGivesTheSameTokens) {
  for (std::uint64_t draw = 0; draw < 50; ++draw) EXPECT_EQ(one({.seed = 9}, {}, draw), one({.seed = 9}, {}, draw));
  std::vector<std::int32_t> a;
  std::vector<std::int32_t> b;
  for (std::uint64_t draw = 0; draw < 50; ++draw) {
    a.push_back(one({.seed = 1}, {}, draw));
    b.push_back(one({.seed = 2}, {}, draw));
  }
  EXPECT_NE(a, b);
}

TEST(Sampler, CutsKeepWhatTheyShould) {
  EXPECT_EQ(possible({.top_k = 1}), (std::set<std::int32_t>{1}));
  EXPECT_EQ(possible({.top_k = 3}), (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(possible({.top_p = 0.5}), (std::set<std::int32_t>{1, 3}));  // 0.40 each, so the first alone does not reach 0.5
  EXPECT_EQ(possible({.top_p = 1e-6}), (std::set<std::int32_t>{1}));
  EXPECT_EQ(possible({.min_p = 0.3}), (std::set<std::int32_t>{1, 2, 3}));  // e^-1 = 0.37 stays, e^-2 = 0.14 goes
  EXPECT_EQ(possible({.temperature = 100}), (std::set<std::int32_t>{0, 1, 2, 3, 4}));
}

TEST(Sampler, PenaltiesAndBias) {
  TokenCounts counts;
  counts.output[1] = 2;
  counts.prompt[3] = 1;
  EXPECT_EQ(one({.temperature = 0, .presence_penalty = 0.1}, counts), 3);
  EXPECT_EQ(one({.temperature = 0, .repetition_penalty = 2}, counts), 2);  // both 3s become 1.5
  EXPECT_EQ(one({.temperature = 0, .frequency_penalty = 0.6}, counts), 3);
  EXPECT_EQ(one({.temperature = 0, .logit_bias = {{4, 100}}}), 4);
}

// Weights in double and a plain sort: the tokens that the cuts keep, in the order in which a draw goes through them.
std::vector<std::pair<double, std::int32_t>> kept_tokens(const std::vector<double>& logits, const SamplingParams& p) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<std::pair<double, std::int32_t>> kept;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((logits[i] - largest) / p.temperature);
    if (weight > 0 && weight >= p.min_p) kept.emplace_back(weight, static_cast<std::int32_t>(i));
  }
  if (p.top_k == 0 && p.top_p == 1) return kept;
  std::stable_sort(kept.begin(), kept.end(), [&](const auto& a, const auto& b) {
    return logits[static_cast<std::size_t>(a.second)] > logits[static_cast<std::size_t>(b.second)];
  });
  if (p.top_k > 0) kept.resize(std::min(kept.size(), static_cast<std::size_t>(p.top_k)));
  double total = 0, sum = 0;
  for (const auto& [weight, token] : kept) total += weight;
  std::size_t count = 0;
  while (count < kept.size() && (count == 0 || sum < p.top_p * total)) sum += kept[count++].first;
  kept.resize(count);
  return kept;
}

// The uniform number of a seed and a draw: splitmix64's published steps.
double uniform_of(std::uint64_t seed, std::uint64_t draw) {
  std::uint64_t z = seed + (draw + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ z >> 31) >> 11) * 0x1p-53;
}

// What weights in float can be off by, relative to the sum of all of them, is far less than kOff.
TEST(Sampler, LargeVocabulariesAsWeightsInDoubleHaveIt) {
  constexpr double kOff = 1e-5;
  std::mt19937 random(3);
  ThreadPool pool(3);
  int drawn = 0;
  for (const std::size_t vocab : {1u, 15u, 63u, 64u, 65u, 1000u, 20011u}) {
    for (const float spread : {0.0f, 0.1f, 3.0f, 30.0f}) {
      std::normal_distribution<float> normal;
      std::vector<float> logits(vocab);
      for (float& logit : logits) logit = spread * normal(random);
      const std::vector<double> doubles(logits.begin(), logits.end());
      const auto k = static_cast<std::int64_t>(1 + vocab / 3);
      for (const SamplingParams& params :
           {SamplingParams{}, SamplingParams{.temperature = 0.3}, SamplingParams{.temperature = 1.5, .top_p = 0.9},
            SamplingParams{.top_k = 7}, SamplingParams{.top_k = k, .top_p = 0.8}, SamplingParams{.min_p = 0.02},
            SamplingParams{.temperature = 100, .top_p = 0.999, .min_p = 0.1}, SamplingParams{.temperature = 0.01, .top_p = 0.5},
            SamplingParams{.temperature = 1e-300}}) {
        const std::vector<std::pair<double, std::int32_t>> kept = kept_tokens(doubles, params);
        double total = 0;
        for (const auto& [weight, token] : kept) total += weight;
        for (std::uint64_t draw = 0; draw < 20; ++draw) {
          const std::int32_t token = Sampler().sample(logits, params, {}, draw).value();
          EXPECT_EQ(Sampler().sample(logits, params, {}, draw, {}, &pool), token);
          double before = 0;
          const auto is_it = [&, wanted = token](const auto& one) { return one.second == wanted; };
          const auto found = std::find_if(kept.begin(), kept.end(), is_it);
          ASSERT_NE(found, kept.end()) << vocab << " tokens, spread " << spread << ", token " << token;
          for (auto one = kept.begin(); one != found; ++one) before += one->first;
          const double target = uniform_of(params.seed, draw) * total;
          EXPECT_GE(target, before - kOff * total) << vocab << " tokens, spread " << spread;
          EXPECT_LE(target, before + found->first + kOff * total) << vocab << " tokens, spread " << spread;
          ++drawn;
        }
      }
    }
  }
  EXPECT_EQ(drawn, 7 * 4 * 9 * 20);
}

TEST(Sampler, AllFiniteFindsEachThatIsNot) {
  for (const std::size_t count : {1u, 16u, 40u}) {
    std::vector<float> logits(count, -std::numeric_limits<float>::max());
    logits[count / 2] = std::numeric_limits<float>::denorm_min();
    EXPECT_TRUE(all_finite(logits));
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
      for (std::size_t i = 0; i < count; ++i) {
        const float before = std::exchange(logits[i], bad);
        EXPECT_FALSE(all_finite(logits)) << bad << " at " << i << " of " << count;
        logits[i] = before;
      }
    }
  }
}

TEST(Sampler, MasksForbid) {
  const auto masked = [](const SamplingParams& params, const SamplingMask& mask) { return Sampler().sample(kLogits, params, {}, 0, mask); };
  const std::vector<std::uint32_t> allowed = {0b10101};  // 0, 2, 4
  EXPECT_EQ(masked({.temperature = 0}, {.allowed = allowed}), 2);
  EXPECT_EQ(masked({.temperature = 0, .logit_bias = {{1, 50}}}, {.allowed = allowed}), 2);
  EXPECT_EQ(masked({.temperature = 0, .logit_bias = {{4, 50}}}, {.allowed = allowed}), 4);
  const std::vector<std::int32_t> forbidden = {1, 2};
  EXPECT_EQ(masked({.temperature = 0}, {.forbidden = forbidden}), 3);
  EXPECT_EQ(masked({.temperature = 0}, {.allowed = allowed, .forbidden = forbidden}), 0);
  const std::vector<std::uint32_t> only_two = {0b00100};
  EXPECT_EQ(masked({.temperature = 0}, {.allowed = only_two, .forbidden = forbidden}), 2) << "what is allowed alone wins";
  const std::vector<std::uint32_t> nothing = {0};
  EXPECT_EQ(masked({}, {.allowed = nothing}), std::nullopt);
  std::set<std::int32_t> seen;
  for (std::uint64_t draw = 0; draw < 2000; ++draw)
    seen.insert(Sampler().sample(kLogits, {.temperature = 5}, {}, draw, {.allowed = allowed}).value());
  EXPECT_EQ(seen, (std::set<std::int32_t>{0, 2, 4}));
}

TEST(Sampler, ChecksItsRanges) {
  EXPECT_TRUE(check({}, 10).ok());
  EXPECT_EQ(check({.temperature = -1}, 10).error().what, "temperature: expected a number from 0 to 100, found -1");
  EXPECT_EQ(check({.top_p = 0}, 10).error().what, "top_p: expected a number above 0, at most 1, found 0");
  EXPECT_EQ(check({.min_p = std::numeric_limits<double>::quiet_NaN()}, 10).error().what, "min_p: expected a number from 0 to 1, found nan");
  EXPECT_EQ(check({.logit_bias = {{10, 1}}}, 10).error().what, "logit_bias token: expected a token id below 10, found 10");
}

}  // namespace
}  // namespace reckoner
