#include "loadgen/summary.h"

#include <gtest/gtest.h>

namespace reckoner::loadgen {
namespace {

// Tokens at these times; each chunk holds one, as the server told.
Timeline answered(double start_s, const std::vector<double>& token_times, double end_s, std::int64_t input_tokens) {
  Timeline timeline{.arrival_s = start_s, .start_s = start_s, .end_s = end_s, .started = true};
  for (const double at_s : token_times) timeline.chunks.push_back({.at_s = at_s, .tokens = 1});
  timeline.input_tokens = input_tokens;
  timeline.output_tokens = static_cast<std::int64_t>(token_times.size());
  timeline.counted = true;
  return timeline;
}

Timeline failed(double start_s, double end_s, Failure failure) {
  Timeline timeline{.arrival_s = start_s, .start_s = start_s, .end_s = end_s, .started = true};
  timeline.failure = std::move(failure);
  return timeline;
}

constexpr double kClose = 1e-9;

TEST(Summary, Percentiles) {
  // As NumPy's default: linear between ranks. [1, 2, 3, 4]: p50 2.5, p25 1.75, p90 3.7.
  const Statistics values = statistics({4, 1, 3, 2}, {0, 25, 50, 90, 100});
  EXPECT_NEAR(values.mean, 2.5, kClose);
  EXPECT_NEAR(values.median, 2.5, kClose);
  EXPECT_NEAR(values.deviation, 1.118033988749895, kClose);  // sqrt(5 / 4)
  const double expected[] = {1, 1.75, 2.5, 3.7, 4};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(values.percentiles[i].second, expected[i], kClose) << i;
  EXPECT_NEAR(statistics({7}, {99}).percentiles[0].second, 7, kClose);
  EXPECT_EQ(statistics({}, {99}).percentiles[0].second, 0);
  EXPECT_EQ(statistics({}, {99}).count, 0);
}

// Two requests by hand. a: sent at 0, tokens at 0.1, 0.2, 0.4, ended at 0.4. b: sent at 0.2, one token at 1.0, ended at 1.2.
TEST(Summary, ByHand) {
  LoadOptions options;
  options.goodput = {{.metric = Metric::ttft, .at_most_ms = 100.5}, {.metric = Metric::e2el, .at_most_ms = 400.5}};
  options.percentiles = {100};
  const Summary summary = summarise({answered(0, {0.1, 0.2, 0.4}, 0.4, 10), answered(0.2, {1.0}, 1.2, 20)}, options);
  EXPECT_EQ(summary.completed, 2);
  EXPECT_EQ(summary.failed, 0);
  EXPECT_NEAR(summary.duration_s, 1.2, kClose);
  EXPECT_EQ(summary.input_tokens, 30);
  EXPECT_EQ(summary.output_tokens, 4);
  EXPECT_NEAR(summary.requests_per_s, 2 / 1.2, kClose);
  EXPECT_NEAR(summary.output_tokens_per_s, 4 / 1.2, kClose);
  EXPECT_NEAR(summary.total_tokens_per_s, 34 / 1.2, kClose);
  EXPECT_NEAR(summary.good_requests_per_s, 1 / 1.2, kClose);
  EXPECT_EQ(summary.peak_concurrency, 2);
  EXPECT_NEAR(summary.peak_output_tokens_per_s, 3, kClose);  // in the first second; b's token begins the second one
  EXPECT_NEAR(summary.of(Metric::ttft).mean, (100 + 800) / 2.0, 1e-6);
  EXPECT_NEAR(summary.of(Metric::ttft).percentiles[0].second, 800, 1e-6);
  EXPECT_EQ(summary.of(Metric::tpot).count, 1);  // a token alone has no time per further token
  EXPECT_NEAR(summary.of(Metric::tpot).mean, 150, 1e-6);
  EXPECT_EQ(summary.of(Metric::itl).count, 2);
  EXPECT_NEAR(summary.of(Metric::itl).mean, (100 + 200) / 2.0, 1e-6);
  EXPECT_NEAR(summary.of(Metric::e2el).mean, (400 + 1000) / 2.0, 1e-6);
  EXPECT_TRUE(summary.tokens_counted);
}

TEST(Summary, EachGoodputTargetCounts) {
  const std::vector<Timeline> timelines = {answered(0, {0.1, 0.3}, 0.3, 1), answered(0, {0.2, 0.3}, 0.3, 1)};
  const auto good = [&](Metric metric, double at_most_ms) {
    LoadOptions options;
    options.goodput = {{.metric = metric, .at_most_ms = at_most_ms}};
    return summarise(timelines, options).good;
  };
  EXPECT_EQ(good(Metric::ttft, 150), 1);
  EXPECT_EQ(good(Metric::ttft, 250), 2);
  EXPECT_EQ(good(Metric::tpot, 150), 1);
  EXPECT_EQ(good(Metric::tpot, 50), 0);
  EXPECT_EQ(good(Metric::itl, 150), 1);
  EXPECT_EQ(good(Metric::e2el, 299), 0);
  EXPECT_EQ(good(Metric::e2el, 301), 2);
}

TEST(Summary, FailuresAreNotInTheNumbers) {
  const Failure busy = {.kind = FailureKind::status, .status = 429, .message = "busy"};
  const Failure cut = {.kind = FailureKind::cut, .status = 200, .message = "cut"};
  Timeline half = failed(0, 0.5, cut);
  half.chunks = {{.at_s = 0.2, .tokens = 1}};
  half.output_tokens = 1;
  Timeline never;
  const Summary summary = summarise({failed(0, 5, busy), half, answered(0, {0.1}, 0.2, 3), failed(1, 2, busy), never}, {});
  EXPECT_EQ(summary.planned, 5);
  EXPECT_EQ(summary.completed, 1);
  EXPECT_EQ(summary.failed, 3);
  EXPECT_EQ(summary.unfinished, 1);
  EXPECT_EQ(summary.output_tokens, 1);
  EXPECT_EQ(summary.of(Metric::e2el).count, 1);
  EXPECT_NEAR(summary.of(Metric::e2el).mean, 200, 1e-6);
  ASSERT_EQ(summary.failures.size(), 2u);
  EXPECT_EQ(summary.failures[0].count, 2);
  EXPECT_EQ(summary.failures[0].example.status, 429);
  EXPECT_EQ(summary.failures[1].example.message, "cut");
}

TEST(Summary, WaitingForAPlaceIsApart) {
  Timeline held = answered(2, {2.5}, 3, 1);
  held.arrival_s = 0.5;
  const Summary summary = summarise({answered(0, {1}, 2, 1), held}, {});
  EXPECT_EQ(summary.held_back, 1);
  EXPECT_NEAR(summary.longest_hold_s, 1.5, kClose);
  EXPECT_EQ(summary.peak_concurrency, 1);  // one began when the other had ended
  EXPECT_NEAR(summary.of(Metric::ttft).mean, (1000 + 500) / 2.0, 1e-6);
}

TEST(Summary, OverTime) {
  // Running from 0 to 1 and from 0.5 to 2; two steps of a second.
  Timeline late = answered(0.5, {1.5, 2.0}, 2, 1);
  for (Chunk& chunk : late.chunks) chunk.tokens = 0;
  late.output_tokens = 6;  // only the sum is known: three to a chunk
  const Series series = over_time({answered(0, {0.25, 0.5}, 1, 1), late}, 2, 2);
  EXPECT_NEAR(series.step_s, 1, kClose);
  EXPECT_NEAR(series.running[0], 1.5, kClose);
  EXPECT_NEAR(series.running[1], 1, kClose);
  EXPECT_NEAR(series.output_tokens_per_s[0], 2, kClose);
  EXPECT_NEAR(series.output_tokens_per_s[1], 6, kClose);
}

TEST(Summary, Nothing) {
  const Summary summary = summarise({}, {});
  EXPECT_EQ(summary.completed, 0);
  EXPECT_EQ(summary.requests_per_s, 0);
  EXPECT_EQ(summary.peak_concurrency, 0);
}

}  // namespace
}  // namespace reckoner::loadgen
