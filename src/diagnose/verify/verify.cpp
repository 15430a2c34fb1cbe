#include "diagnose/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/single_sequence.h"

namespace reckoner {
namespace {

struct TopTwo {
  std::int32_t best = 0;
  double gap = 0;  // best minus second best
};

TopTwo top_two(const float* logits, std::int64_t vocab) {
  const float* best = std::max_element(logits, logits + vocab);
  float second = -INFINITY;
  for (const float* logit = logits; logit != logits + vocab; ++logit) {
    if (logit != best) second = std::max(second, *logit);
  }
  return {static_cast<std::int32_t>(best - logits), static_cast<double>(*best) - second};
}

double max_logprob(const float* logits, std::int64_t vocab) {
  const double largest = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (std::int64_t i = 0; i < vocab; ++i) sum += std::exp(logits[i] - largest);
  return -std::log(sum);
}

// NaN must not look like agreement.
double difference(float a, float b) { return std::isfinite(a) && std::isfinite(b) ? std::fabs(static_cast<double>(a) - b) : INFINITY; }

// Compares one run of one case while it is fed.
class Comparison {
 public:
  Comparison(const ReferenceCase& reference, const VerifyBound& bound, VerifyRun& run) : reference_(reference), bound_(bound), run_(run) {
    run_.hidden_error.assign(reference.hidden.size(), 0);
    run_.hidden_scale.assign(reference.hidden.size(), 0);
  }

  void hidden(std::int64_t layer, std::int64_t position, const float* values, std::int64_t width) {
    if (position < reference_.first_hidden_row) return;
    const auto index = static_cast<std::size_t>(layer);
    const float* expected = reference_.hidden[index].data() + (position - reference_.first_hidden_row) * width;
    for (std::int64_t i = 0; i < width; ++i) {
      run_.hidden_error[index] = std::max(run_.hidden_error[index], difference(values[i], expected[i]));
      run_.hidden_scale[index] = std::max(run_.hidden_scale[index], static_cast<double>(std::fabs(expected[i])));
    }
  }

  void logits(std::int64_t position, const float* values) {
    const auto row = static_cast<std::size_t>(position);
    if (position >= reference_.first_logit_row) {
      const float* expected = reference_.logits.data() + (position - reference_.first_logit_row) * reference_.vocab;
      for (std::int64_t i = 0; i < reference_.vocab; ++i) run_.logit_error = std::max(run_.logit_error, difference(values[i], expected[i]));
      const TopTwo top = top_two(expected, reference_.vocab);
      argmax(top_two(values, reference_.vocab).best == top.best, top.gap > bound_.argmax_gap);
    } else if (!reference_.argmax.empty()) {
      // Only the reference's best token is known here: a gap of ours beyond twice the bound cannot come from errors within it.
      const TopTwo top = top_two(values, reference_.vocab);
      argmax(top.best == reference_.argmax[row], top.gap > 2 * bound_.argmax_gap);
    }
    if (!reference_.max_logprob.empty()) {
      run_.logprob_error = std::max(run_.logprob_error, std::fabs(max_logprob(values, reference_.vocab) - reference_.max_logprob[row]));
    }
  }

 private:
  void argmax(bool equal, bool decided) {
    ++run_.argmax_checked;
    run_.argmax_equal += equal ? 1 : 0;
    run_.argmax_wrong += !equal && decided ? 1 : 0;
  }

  const ReferenceCase& reference_;
  const VerifyBound& bound_;
  VerifyRun& run_;
};

enum class Watch : std::uint8_t { logits, hidden_too };

void feed(StepRunner& runner, SingleSequence& sequence, const ReferenceCase& reference, Comparison& comparison, std::int64_t chunk,
          Watch watch) {
  sequence.restart();
  const auto tokens = static_cast<std::int64_t>(reference.input_ids.size());
  std::int64_t first = 0;
  if (watch == Watch::hidden_too) {
    runner.taps = [&](std::string_view name, std::int64_t layer, const Tensor& value) {
      if (name != "hidden") return;
      for (std::int64_t row = 0; row < value.dim(0); ++row)
        comparison.hidden(layer, first + row, value.f32() + row * value.dim(1), value.dim(1));
    };
  }
  for (; first < tokens; first += chunk) {
    const std::int64_t count = std::min(chunk, tokens - first);
    const StepOutput output = sequence.append(
        std::span(reference.input_ids).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), Sample::yes);
    for (std::int64_t row = 0; row < count; ++row) comparison.logits(first + row, output.logits.f32() + row * reference.vocab);
  }
  runner.taps = {};
}

// Goes on greedily from the last token of the prompt; returns how many leading tokens are the reference's.
std::int64_t generate(SingleSequence& sequence, const ReferenceCase& reference, std::int32_t first) {
  std::int32_t token = first;
  for (std::size_t i = 0; i < reference.generated.size(); ++i) {
    if (token != reference.generated[i]) return static_cast<std::int64_t>(i);
    const StepOutput output = sequence.append(std::span(&token, 1), Sample::yes);
    token = top_two(output.logits.f32(), reference.vocab).best;
  }
  return static_cast<std::int64_t>(reference.generated.size());
}

std::string judge(const VerifyRun& run, const VerifyBound& bound, std::int64_t generated) {
  if (!(run.logit_error <= bound.logit_error))
    return fmt::format("largest logit error {:.2e} is above {:.2e}", run.logit_error, bound.logit_error);
  if (run.argmax_wrong > 0) return fmt::format("{} positions have another most probable token", run.argmax_wrong);
  if (run.generated_equal < generated)
    return fmt::format("greedy decoding leaves the reference at token {} of {}", run.generated_equal, generated);
  return {};
}

}  // namespace

VerifyBound bound_for(Precision precision, KvCacheType cache_type, const ReferenceCase& reference) {
  if (precision == Precision::exact && cache_type == KvCacheType::automatic) return {.logit_error = 1e-3, .argmax_gap = 1e-3};
  double squares = 0;
  for (const float logit : reference.logits) squares += static_cast<double>(logit) * logit;
  const double rms = std::sqrt(squares / static_cast<double>(reference.logits.size()));
  // BF16 keeps 8 bits: an error of 2^-8 at most, about 2^-9 as a rule; E4M3 keeps 4: about 2^-5. About a dozen roundings a layer, two of
  // them to the cache, add up like a random walk, and the largest of a million logits lies five standard deviations out.
  const auto layers = static_cast<double>(reference.hidden.size());
  const double to_bf16 = precision == Precision::fast ? 12 : 0;
  const double to_fp8 = cache_type == KvCacheType::fp8 ? 2 : 0;
  const double error = std::sqrt(layers * (to_bf16 * 0x1p-18 + to_fp8 * 0x1p-10)) * 5 * rms;
  return {.logit_error = error, .argmax_gap = 2 * error};
}

bool VerifyCase::passed() const {
  return std::all_of(runs.begin(), runs.end(), [](const VerifyRun& run) { return run.failure.empty(); });
}

std::vector<VerifyCase> verify(StepRunner& runner, const std::vector<ReferenceCase>& cases, const std::vector<std::int64_t>& chunks) {
  RunnerView model(runner);
  return verify(model, cases, chunks);
}

std::vector<VerifyCase> verify(StepModel& model, const std::vector<ReferenceCase>& cases, const std::vector<std::int64_t>& chunks) {
  StepRunner& runner = *model.runner();
  CHECK(runner.limits().max_samples >= runner.limits().max_tokens);
  SingleSequence sequence(model);
  std::vector<VerifyCase> results;
  for (const ReferenceCase& reference : cases) {
    VerifyCase result{.name = reference.name,
                      .tokens = static_cast<std::int64_t>(reference.input_ids.size()),
                      .generated = static_cast<std::int64_t>(reference.generated.size()),
                      .bound = bound_for(runner.precision(), runner.limits().cache_type, reference),
                      .runs = {}};
    for (const std::int64_t chunk : chunks) {
      VerifyRun run{.chunk = chunk == 0 ? std::min(runner.limits().max_tokens, result.tokens) : chunk};
      Comparison comparison(reference, result.bound, run);
      feed(runner, sequence, reference, comparison, run.chunk, Watch::hidden_too);
      // Steps that somebody looks into are not recorded: once more, for those that are.
      if (runner.records_steps()) feed(runner, sequence, reference, comparison, run.chunk, Watch::logits);
      if (!reference.generated.empty()) run.generated_equal = generate(sequence, reference, reference.generated.front());
      run.failure = judge(run, result.bound, result.generated);
      result.runs.push_back(std::move(run));
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace reckoner
