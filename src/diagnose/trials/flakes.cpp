#include "diagnose/trials/flakes.h"

#include <algorithm>
#include <cmath>

namespace reckoner::trials {
namespace {

double log_beta(double a, double b) { return std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b); }

// The share of Beta(a, b) below `x`: the density summed over small steps; a, b >= 1, so that it has no poles.
double share_below(double a, double b, double x) {
  constexpr int kSteps = 20'000;
  const double norm = log_beta(a, b);
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double at = (i + 0.5) / kSteps * x;
    sum += std::exp((a - 1) * std::log(at) + (b - 1) * std::log1p(-at) - norm);
  }
  return sum * x / kSteps;
}

double quantile(double a, double b, double share) {
  double low = 0;
  double high = 1;
  for (int i = 0; i < 20; ++i) {
    const double middle = (low + high) / 2;
    (share_below(a, b, middle) < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

// Starts that no failing set explains, of configurations whose failures are not stable: passes and flaky failures.
bool is_eligible(const Count& count, const Configuration& configuration, const std::vector<FailingSet>& sets) {
  return count.passes > 0 && !contains_any(configuration, sets);
}

}  // namespace

RateEstimate failure_rate(std::int64_t failures, std::int64_t passes) {
  const double a = static_cast<double>(failures) + 1;
  const double b = static_cast<double>(passes) + 1;
  return {.mean = a / (a + b), .low = quantile(a, b, 0.025), .high = quantile(a, b, 0.975)};
}

double flaky_confidence(std::int64_t failures, std::int64_t passes) {
  const double a = static_cast<double>(failures) + 1;
  const double b = static_cast<double>(passes) + 1;
  // One outcome or the other may be as rare as 1 %; that both were seen rules out neither end for certain.
  return share_below(a, b, 0.99) - share_below(a, b, 0.01);
}

std::int64_t starts_to_rule_out(double rate, double confidence) {
  // The quotient may lie a rounding error above a whole number.
  return static_cast<std::int64_t>(std::ceil(std::log1p(-confidence) / std::log1p(-rate) - 1e-9));
}

bool contains_any(const Configuration& configuration, const std::vector<FailingSet>& sets) {
  return std::any_of(sets.begin(), sets.end(), [&](const FailingSet& one) { return contains(configuration, one.set); });
}

std::int64_t exposures(const Knowledge& knowledge, const std::vector<FailingSet>& sets, int factor, int value) {
  std::int64_t starts = 0;
  for (const auto& [configuration, count] : knowledge.counts()) {
    if (configuration[static_cast<std::size_t>(factor)] == value && is_eligible(count, configuration, sets)) {
      starts += count.passes + count.failures;
    }
  }
  return starts;
}

std::vector<FlakySuspect> flaky_suspects(const Knowledge& knowledge, const std::vector<FailingSet>& sets) {
  std::vector<FlakySuspect> suspects = {{.factor = -1}};
  for (int factor = 0; factor < knowledge.factors(); ++factor) {
    for (const int value : knowledge.distinct_values(factor)) {
      if (!knowledge.is_inert(factor)) suspects.push_back({.factor = factor, .value = value});
    }
  }
  std::int64_t all_failures = 0;
  for (const auto& [configuration, count] : knowledge.counts()) {
    if (!is_eligible(count, configuration, sets)) continue;
    all_failures += count.failures;
    for (FlakySuspect& suspect : suspects) {
      if (suspect.factor >= 0 && configuration[static_cast<std::size_t>(suspect.factor)] != suspect.value) continue;
      suspect.failures += count.failures;
      suspect.starts += count.failures + count.passes;
    }
  }
  std::erase_if(suspects, [&](const FlakySuspect& suspect) { return all_failures == 0 || suspect.failures < all_failures; });
  double total = 0;
  for (FlakySuspect& suspect : suspects) {
    const auto failures = static_cast<double>(suspect.failures);
    suspect.probability = std::exp(log_beta(failures + 1, static_cast<double>(suspect.starts) - failures + 1));
    total += suspect.probability;
  }
  for (FlakySuspect& suspect : suspects) suspect.probability /= total;
  std::stable_sort(suspects.begin(), suspects.end(),
                   [](const FlakySuspect& a, const FlakySuspect& b) { return a.probability > b.probability; });
  return suspects;
}

}  // namespace reckoner::trials
