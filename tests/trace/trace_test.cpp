// What trace reports of a healthy model, and of values that no op spoilt.
#include <cmath>
#include <cstring>

#include "diagnose/trace/trace_report.h"
#include "engine/engine.h"
#include "trace_support.h"

namespace reckoner::trace {
namespace {

constexpr const char* kSparse = "tests/golden/glm_moe_dsa";

const CallSummary& call_of(const TraceReport& report, const std::string& text) {
  const auto found = std::find_if(report.calls.begin(), report.calls.end(), [&](const CallSummary& c) { return c.name.text() == text; });
  if (found == report.calls.end()) throw std::runtime_error("no call " + text);
  return *found;
}

TEST(Trace, NumbersOfEachOpAreThoseOfTheValues) {
  TraceStand stand(kSparse);
  const std::vector<std::int32_t> prompt = some_prompt(*stand.model, 40);
  const TraceReport report = stand.run(cpu_catalogue(), {.prompt = prompt, .decode_steps = 3, .keep_values = Wish::yes});
  EXPECT_EQ(report.steps, 4) << "the prompt at once, and three tokens of the answer";
  EXPECT_EQ(report.generated.size(), 3u);
  EXPECT_FALSE(report.origin.has_value());
  // The attention's output, which a tap shows as well.
  const StoredValue* const tapped = report.values.find("layers.2.attention");
  ASSERT_NE(tapped, nullptr);
  EXPECT_EQ(tapped->rows(), 43);
  double squares = 0, low = 0, high = 0;
  for (const float value : tapped->values) {
    squares += static_cast<double>(value) * value;
    low = std::fmin(low, value);
    high = std::fmax(high, value);
  }
  const CallSummary& call = call_of(report, "layer 2, attention: linear o_proj");
  EXPECT_EQ(call.output.count, std::ssize(tapped->values));
  EXPECT_NEAR(call.output.rms(), std::sqrt(squares / static_cast<double>(tapped->values.size())), 1e-6);
  EXPECT_EQ(call.output.low, low);
  EXPECT_EQ(call.output.high, high);
  EXPECT_EQ(call.output.non_finite, 0);
  // Each token goes to top_k experts in each layer but the dense one.
  ASSERT_EQ(report.routers.size(), 3u);
  for (const RouterBalance& router : report.routers) {
    std::int64_t chosen = 0;
    for (const std::int64_t count : router.chosen) chosen += count;
    EXPECT_EQ(chosen, 43 * stand.model->config.num_experts_per_tok);
    EXPECT_EQ(router.tokens, 43);
    EXPECT_GT(router.entropy(), 0);
    EXPECT_LE(router.entropy(), 1);
  }
  // 16 of up to 43 positions are selected: some attention is lost, and never is there more than all.
  ASSERT_EQ(report.selections.size(), 4u);
  for (const SelectionQuality& quality : report.selections) {
    EXPECT_EQ(quality.rows, 43 - 16);
    EXPECT_GT(quality.mean_kept(), 0.3);
    EXPECT_LT(quality.mean_kept(), 1);
    EXPECT_LE(quality.least_kept, quality.mean_kept());
  }
}

// Written by hand: 3 of 4 experts, 6, 1 and 1 times.
TEST(Trace, EvennessOfRouters) {
  const RouterBalance balance{.chosen = {6, 0, 1, 1}};
  const double expected = -(0.75 * std::log(0.75) + 2 * 0.125 * std::log(0.125)) / std::log(4.0);
  EXPECT_NEAR(balance.entropy(), expected, 1e-12);
  EXPECT_NEAR(balance.max_share(), 0.75, 1e-12);
  EXPECT_EQ(balance.idle(), 1);
  EXPECT_NEAR((RouterBalance{.chosen = {5, 5}}).entropy(), 1, 1e-12);
}

TEST(Trace, FastIsMeasuredAgainstExact) {
  TraceStand stand(kSparse);
  stand.precision = Precision::fast;
  const TraceReport report = stand.run(cpu_catalogue(), {.prompt = some_prompt(*stand.model, 12), .decode_steps = 0});
  EXPECT_TRUE(report.compared_exact);
  const double error = call_of(report, "layer 0, attention: linear q_b_proj").error().value();
  EXPECT_LT(error, 0.05);
  EXPECT_EQ(call_of(report, "embedding: embed embed_tokens").error().value_or(0), 0) << "the same bytes in both";
}

TEST(Trace, EveryCallOfEveryGoldenModelAgreesWithItsReference) {
  for (const char* name : {"glm_moe_dsa_shared", "deepseek_v32", "deepseek_v3_groups", "glm4_moe"}) {
    for (const Precision precision : {Precision::exact, Precision::fast}) {
      TraceStand stand(fs::path("tests/golden") / name);
      stand.precision = precision;
      const TraceReport report =
          stand.run(cpu_catalogue(), {.prompt = some_prompt(*stand.model, 37), .decode_steps = 1, .check_ops = Wish::yes});
      EXPECT_FALSE(report.wrong.has_value()) << name << ": " << report.wrong->sentence();
      EXPECT_GT(report.checked_calls, 100);
      EXPECT_LE(report.check_worst, 1);
    }
  }
}

// --inject-nan writes between ops: no op is to blame.
TEST(Trace, WhatNoOpWroteIsNotBlamedOnOne) {
  TraceStand stand(kSparse);
  TraceWishes wishes{.prompt = some_prompt(*stand.model, 20), .decode_steps = 0, .chunk = 8};
  wishes.fault.place = GuardPlace::feed_forward(1);
  wishes.fault_position = 13;
  const TraceReport report = stand.run(cpu_catalogue(), wishes);
  ASSERT_TRUE(report.origin.has_value());
  EXPECT_EQ(report.origin->cause, Cause::overwritten);
  EXPECT_EQ(report.origin->call.text(), "layer 2, input_norm: rms_norm");
  EXPECT_EQ(report.origin->argument, "add");
  EXPECT_EQ(report.origin->step, 1) << "8 tokens a step";
  EXPECT_EQ(report.origin->token, 5);
  EXPECT_EQ(report.origin->position, 13);
}

TEST(Trace, ReportsHoldWhatWasFound) {
  TraceStand stand(kSparse);
  stand.precision = Precision::fast;
  const TraceReport report = stand.run(cpu_catalogue(), {.prompt = some_prompt(*stand.model, 20), .decode_steps = 0});
  const TraceFacts facts{.model = "<model>", .device = "a & b", .precision = "fast", .version = "0"};
  const std::string html = trace_html(facts, report, nullptr);
  EXPECT_NE(html.find("&lt;model&gt;"), std::string::npos);
  EXPECT_EQ(html.find("<model>"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos) << "nothing from elsewhere";
  EXPECT_NE(html.find("layer 3, experts: linear_experts down_proj"), std::string::npos);
  const std::string text = trace_text(facts, report, nullptr);
  EXPECT_NE(text.find("attention: linear o_proj"), std::string::npos);
  EXPECT_NE(text.find("all values are finite"), std::string::npos);
  EXPECT_TRUE(parse_json(trace_json(facts, report, nullptr), "report").ok());
}

// The engine shows a bad step before it gives anything back, once it has decided; and the step can be run again.
TEST(EngineBadStep, CanBeLookedIntoWhileTheOtherRequestGoesOn) {
  TraceStand stand(kSparse);
  Engine engine(*stand.model, cpu_catalogue(), detect_cpu(), stand.pool, Precision::exact,
                {.max_context = 64, .cache_tokens = 256, .max_sequences = 2, .max_step_tokens = 16});
  const WeightIndex weights(*stand.model, stand.model->weights);
  std::vector<Origin> origins;
  std::vector<std::int64_t> positions;
  engine.on_bad_step = [&](const BadStep& bad) {
    positions.push_back(bad.position);
    EXPECT_EQ(layer_of(bad.place, 4), 2);
    const std::optional<Origin> origin = find_origin(bad.runner, bad.batch, bad.step, weights, {}, layer_of(bad.place, 4));
    ASSERT_TRUE(origin.has_value());
    origins.push_back(*origin);
  };
  const std::vector<std::int32_t> prompt = some_prompt(*stand.model, 9);
  const std::int64_t good = engine.submit({.prompt = prompt, .max_tokens = 6}).value();
  const std::int64_t bad = engine.submit({.prompt = some_prompt(*stand.model, 7), .max_tokens = 6}).value();
  engine.inject = {.request = bad, .position = 8, .place = GuardPlace::attention(2)};
  std::vector<std::int32_t> answer;
  std::string error;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      if (event.request == good) answer.push_back(event.token);
      if (event.request == bad && event.finish == FinishReason::error) error = event.error;
    }
    ASSERT_TRUE(check_invariants(engine).ok());
  }
  ASSERT_EQ(origins.size(), 1u);
  EXPECT_EQ(positions, std::vector<std::int64_t>{8});
  EXPECT_EQ(origins[0].call.text(), "layer 2, post_attention_norm: rms_norm");
  EXPECT_EQ(origins[0].position, 8);
  EXPECT_EQ(origins[0].cause, Cause::overwritten);
  EXPECT_NE(error.find("position 8: layer 2, attention"), std::string::npos) << error;
  // The same answer as alone, without any fault.
  Engine alone(*stand.model, cpu_catalogue(), detect_cpu(), stand.pool, Precision::exact,
               {.max_context = 64, .cache_tokens = 256, .max_sequences = 2, .max_step_tokens = 16});
  static_cast<void>(alone.submit({.prompt = prompt, .max_tokens = 6}));
  std::vector<std::int32_t> wanted;
  while (!alone.idle()) {
    for (const TokenEvent& event : alone.step()) wanted.push_back(event.token);
  }
  EXPECT_EQ(answer, wanted);
}

}  // namespace
}  // namespace reckoner::trace
