#include "diagnose/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
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

  // Where routers chose otherwise than in exact arithmetic.
  std::map<std::int64_t, RoutingChange> changes;

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
    const Seen seen = look(position, values);
    const auto change = changes.find(position);
    // Values that are not finite come from no tie.
    if (change != changes.end() && change->second.is_tie() && (seen.error > bound_.logit_error || seen.is_wrong()) &&
        std::isfinite(seen.error)) {
      left_out_.insert(position);
      return;
    }
    run_.logit_error = std::max(run_.logit_error, seen.error);
    run_.argmax_checked += seen.has_argmax ? 1 : 0;
    run_.argmax_equal += seen.has_argmax && seen.equal ? 1 : 0;
    run_.argmax_wrong += seen.is_wrong() ? 1 : 0;
    if (!reference_.max_logprob.empty()) {
      const float expected = reference_.max_logprob[static_cast<std::size_t>(position)];
      run_.logprob_error = std::max(run_.logprob_error, std::fabs(max_logprob(values, reference_.vocab) - expected));
    }
  }

  // What is to be said of the routers when all is fed: ties that made a difference are kept, the first error is told.
  void finish() {
    for (const auto& [position, change] : changes) {
      if (left_out_.contains(position)) run_.ties.push_back(change);
      if (change.is_tie() || !run_.failure.empty()) continue;
      run_.failure = fmt::format("at position {} layer {} chose expert {} for {}, whose scores differ by {:.1e}; rounding makes {:.1e}",
                                 position, change.layer, change.to, change.from, change.gap, change.allowed);
    }
  }

 private:
  struct Seen {
    double error = 0;
    bool has_argmax = false;
    bool equal = false;
    bool decided = false;  // the best is better than the second by more than errors can bridge
    bool is_wrong() const { return has_argmax && decided && !equal; }
  };

  Seen look(std::int64_t position, const float* values) const {
    Seen seen;
    if (position >= reference_.first_logit_row) {
      const float* expected = reference_.logits.data() + (position - reference_.first_logit_row) * reference_.vocab;
      for (std::int64_t i = 0; i < reference_.vocab; ++i) seen.error = std::max(seen.error, difference(values[i], expected[i]));
      const TopTwo top = top_two(expected, reference_.vocab);
      return {seen.error, true, top_two(values, reference_.vocab).best == top.best, top.gap > bound_.argmax_gap};
    }
    if (reference_.argmax.empty()) return seen;
    // Only the reference's best token is known here: a gap of ours beyond twice the bound cannot come from errors within it.
    const TopTwo top = top_two(values, reference_.vocab);
    return {0, true, top.best == reference_.argmax[static_cast<std::size_t>(position)], top.gap > 2 * bound_.argmax_gap};
  }

  const ReferenceCase& reference_;
  const VerifyBound& bound_;
  VerifyRun& run_;
  std::set<std::int64_t> left_out_;
};

// BF16 keeps 8 bits: an error of 2^-8 at most, about 2^-9 as a rule; E4M3 keeps 4: about 2^-5. About a dozen roundings a layer, two of
// them to the cache, add up like a random walk.
double relative_error(Precision precision, KvCacheType cache_type, std::int64_t layers) {
  const double to_bf16 = precision == Precision::fast ? 12 : 0;
  const double to_fp8 = cache_type == KvCacheType::fp8 ? 2 : 0;
  return std::sqrt(static_cast<double>(layers) * (to_bf16 * 0x1p-18 + to_fp8 * 0x1p-10));
}

// Feeds a case in steps of `chunk` tokens; `seen` is told of each step's logits, with the position of their first row.
template <class Seen>
void feed(SingleSequence& sequence, const ReferenceCase& reference, std::int64_t chunk, std::int64_t& first, const Seen& seen) {
  sequence.restart();
  const auto tokens = static_cast<std::int64_t>(reference.input_ids.size());
  for (first = 0; first < tokens; first += chunk) {
    const std::int64_t count = std::min(chunk, tokens - first);
    const StepOutput output = sequence.append(
        std::span(reference.input_ids).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), Sample::yes);
    for (std::int64_t row = 0; row < count; ++row) seen(first + row, output.logits.f32() + row * reference.vocab);
  }
}

RouterRuler measure_routers(const TieBreaker& ties, SingleSequence& sequence, const ReferenceCase& reference) {
  StepRunner& exact = *ties.exact->runner();
  RouterRuler ruler(exact.config(), *ties.host_weights);
  std::int64_t first = 0;
  exact.taps = [&](std::string_view name, std::int64_t layer, const Tensor& value) {
    if (name == "router_logits") ruler.record(layer, first, value);
  };
  feed(sequence, reference, exact.limits().max_tokens, first, [](std::int64_t, const float*) {});
  exact.taps = {};
  return ruler;
}

void compare(StepRunner& runner, SingleSequence& sequence, const ReferenceCase& reference, const RouterRuler* ruler, std::int64_t chunk,
             Comparison& comparison) {
  std::int64_t first = 0;
  const auto see_logits = [&](std::int64_t position, const float* values) { comparison.logits(position, values); };
  runner.taps = [&](std::string_view name, std::int64_t layer, const Tensor& value) {
    if (name == "router_logits" && ruler != nullptr) {
      const double error = relative_error(runner.precision(), runner.limits().cache_type, layer + 1);
      ruler->compare(layer, first, value, error, comparison.changes);
    }
    if (name != "hidden") return;
    for (std::int64_t row = 0; row < value.dim(0); ++row)
      comparison.hidden(layer, first + row, value.f32() + row * value.dim(1), value.dim(1));
  };
  feed(sequence, reference, chunk, first, see_logits);
  runner.taps = {};
  // Steps that somebody looks into are not recorded: once more, for those that are.
  if (runner.records_steps()) feed(sequence, reference, chunk, first, see_logits);
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
  // The largest of a million logits lies five standard deviations out.
  const double error = relative_error(precision, cache_type, static_cast<std::int64_t>(reference.hidden.size())) * 5 * rms;
  return {.logit_error = error, .argmax_gap = 2 * error};
}

bool VerifyCase::passed() const {
  return std::all_of(runs.begin(), runs.end(), [](const VerifyRun& run) { return run.failure.empty(); });
}

std::vector<VerifyCase> verify(StepRunner& runner, const std::vector<ReferenceCase>& cases, const std::vector<std::int64_t>& chunks) {
  RunnerView model(runner);
  return verify(model, cases, chunks);
}

std::vector<VerifyCase> verify(StepModel& model, const std::vector<ReferenceCase>& cases, const std::vector<std::int64_t>& chunks,
                               const TieBreaker& ties) {
  StepRunner& runner = *model.runner();
  CHECK(runner.limits().max_samples >= runner.limits().max_tokens);
  SingleSequence sequence(model);
  std::optional<SingleSequence> exact_sequence;
  if (ties.exact != nullptr) exact_sequence.emplace(*ties.exact);
  std::vector<VerifyCase> results;
  for (const ReferenceCase& reference : cases) {
    VerifyCase result{.name = reference.name,
                      .tokens = static_cast<std::int64_t>(reference.input_ids.size()),
                      .generated = static_cast<std::int64_t>(reference.generated.size()),
                      .bound = bound_for(runner.precision(), runner.limits().cache_type, reference),
                      .runs = {}};
    const std::optional<RouterRuler> ruler =
        exact_sequence ? std::optional(measure_routers(ties, *exact_sequence, reference)) : std::nullopt;
    for (const std::int64_t chunk : chunks) {
      VerifyRun run{.chunk = chunk == 0 ? std::min(runner.limits().max_tokens, result.tokens) : chunk};
      Comparison comparison(reference, result.bound, run);
      compare(runner, sequence, reference, ruler ? &*ruler : nullptr, run.chunk, comparison);
      if (!reference.generated.empty()) run.generated_equal = generate(sequence, reference, reference.generated.front());
      comparison.finish();
      if (run.failure.empty()) run.failure = judge(run, result.bound, result.generated);
      result.runs.push_back(std::move(run));
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace reckoner
