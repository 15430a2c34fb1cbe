#include "diagnose/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
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

// More positions than these beyond the bound are no ties.
constexpr std::ptrdiff_t kMostBeyond = 64;

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

  // Logits of a position that are beyond the bound.
  struct Beyond {
    std::int64_t position;
    std::vector<float> logits;
  };

  void logits(std::int64_t position, const float* values) {
    const Seen seen = look(position, values);
    // Values that are not finite come from no tie.
    if (seen.is_beyond(bound_) && std::isfinite(seen.error) && std::ssize(beyond) < kMostBeyond)
      return beyond.push_back({position, std::vector<float>(values, values + reference_.vocab)});
    count(position, values, seen);
  }

  // What was held back counts after all, but for what `expected`, logits by position, agrees with.
  void settle(const std::map<std::int64_t, std::vector<float>>& expected) {
    for (const Beyond& one : beyond) {
      const auto found = expected.find(one.position);
      if (found != expected.end() && !compared(one.logits.data(), found->second.data()).is_beyond(bound_)) {
        ++run_.left_out;
      } else {
        count(one.position, one.logits.data(), look(one.position, one.logits.data()));
      }
    }
  }

  // Held back until it is known whether a tie explains them.
  std::vector<Beyond> beyond;

 private:
  struct Seen {
    double error = 0;
    bool has_argmax = false;
    bool equal = false;
    bool decided = false;  // the best is better than the second by more than errors can bridge
    bool is_wrong() const { return has_argmax && decided && !equal; }
    bool is_beyond(const VerifyBound& bound) const { return !(error <= bound.logit_error) || is_wrong(); }
  };

  void count(std::int64_t position, const float* values, const Seen& seen) {
    run_.logit_error = std::max(run_.logit_error, seen.error);
    run_.argmax_checked += seen.has_argmax ? 1 : 0;
    run_.argmax_equal += seen.has_argmax && seen.equal ? 1 : 0;
    run_.argmax_wrong += seen.is_wrong() ? 1 : 0;
    if (!reference_.max_logprob.empty()) {
      const float expected = reference_.max_logprob[static_cast<std::size_t>(position)];
      run_.logprob_error = std::max(run_.logprob_error, std::fabs(max_logprob(values, reference_.vocab) - expected));
    }
  }

  Seen compared(const float* values, const float* expected) const {
    Seen seen{.has_argmax = true};
    for (std::int64_t i = 0; i < reference_.vocab; ++i) seen.error = std::max(seen.error, difference(values[i], expected[i]));
    const TopTwo top = top_two(expected, reference_.vocab);
    seen.equal = top_two(values, reference_.vocab).best == top.best;
    seen.decided = top.gap > bound_.argmax_gap;
    return seen;
  }

  Seen look(std::int64_t position, const float* values) const {
    if (position >= reference_.first_logit_row)
      return compared(values, reference_.logits.data() + (position - reference_.first_logit_row) * reference_.vocab);
    if (reference_.argmax.empty()) return {};
    // Only the reference's best token is known here: a gap of ours beyond twice the bound cannot come from errors within it.
    const TopTwo top = top_two(values, reference_.vocab);
    return {0, true, top.best == reference_.argmax[static_cast<std::size_t>(position)], top.gap > 2 * bound_.argmax_gap};
  }

  const ReferenceCase& reference_;
  const VerifyBound& bound_;
  VerifyRun& run_;
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

void compare(StepRunner& runner, SingleSequence& sequence, const ReferenceCase& reference, std::int64_t chunk, RouterLog& routers,
             Comparison& comparison) {
  std::int64_t first = 0;
  const auto see_logits = [&](std::int64_t position, const float* values) { comparison.logits(position, values); };
  runner.taps = [&](std::string_view name, std::int64_t layer, const Tensor& value) {
    if (name == "router_logits") routers.record(layer, first, value);
    if (name != "hidden") return;
    for (std::int64_t row = 0; row < value.dim(0); ++row)
      comparison.hidden(layer, first + row, value.f32() + row * value.dim(1), value.dim(1));
  };
  feed(sequence, reference, chunk, first, see_logits);
  runner.taps = {};
  // Steps that somebody looks into are not recorded: once more, for those that are.
  if (runner.records_steps()) feed(sequence, reference, chunk, first, see_logits);
}

// Logits of the positions that are beyond the bound, in exact arithmetic that resolves near ties as the run did.
std::map<std::int64_t, std::vector<float>> logits_with_ties(StepRunner& exact, const ReferenceCase& reference, RoutingGuide& guide,
                                                            const StepRunner& runner, const Comparison& comparison) {
  std::map<std::int64_t, std::vector<float>> logits;
  for (const Comparison::Beyond& one : comparison.beyond) logits[one.position];
  std::int64_t first = 0;
  exact.taps = [&](std::string_view name, std::int64_t layer, const Tensor& value) {
    if (name == "router_logits")
      guide.guide(layer, first, value, relative_error(runner.precision(), runner.limits().cache_type, layer + 1));
  };
  SingleSequence sequence(exact);
  feed(sequence, reference, exact.limits().max_tokens, first, [&](std::int64_t position, const float* values) {
    if (const auto wanted = logits.find(position); wanted != logits.end()) wanted->second.assign(values, values + reference.vocab);
  });
  exact.taps = {};
  return logits;
}

// Tells ties from errors where there is something to tell.
void settle(const TieBreaker& ties, std::unique_ptr<StepRunner>& exact, const ReferenceCase& reference, const RouterLog& routers,
            const StepRunner& runner, Comparison& comparison, VerifyRun& run) {
  if (comparison.beyond.empty() || !ties.make_exact || routers.empty()) return comparison.settle({});
  if (exact == nullptr) exact = ties.make_exact();
  RoutingGuide guide(exact->config(), *ties.host_weights, routers);
  const std::map<std::int64_t, std::vector<float>> logits = logits_with_ties(*exact, reference, guide, runner, comparison);
  comparison.settle(guide.ties.empty() ? std::map<std::int64_t, std::vector<float>>() : logits);
  run.ties = std::move(guide.ties);
  if (guide.errors.empty()) return;
  const RoutingChange& error = guide.errors.front();
  run.failure = fmt::format("at position {} layer {} chose expert {} for {}, whose scores differ by {:.1e}; rounding makes {:.1e}",
                            error.position, error.layer, error.to, error.from, error.gap, error.allowed);
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
  std::unique_ptr<StepRunner> exact;  // once it is needed
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
      RouterLog routers;
      compare(runner, sequence, reference, run.chunk, routers, comparison);
      settle(ties, exact, reference, routers, runner, comparison, run);
      if (!reference.generated.empty()) run.generated_equal = generate(sequence, reference, reference.generated.front());
      if (run.failure.empty()) run.failure = judge(run, result.bound, result.generated);
      result.runs.push_back(std::move(run));
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace reckoner
