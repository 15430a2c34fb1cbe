// What repeated starts say about outcomes that come and go.
#pragma once

#include <cstdint>
#include <vector>

#include "diagnose/trials/knowledge.h"

namespace reckoner::trials {

// The failure rate of one configuration after f failures and p passes: Beta(f + 1, p + 1), the posterior of a uniform prior.
struct RateEstimate {
  double mean = 0;  // (f + 1) / (f + p + 2)
  double low = 0;   // 95 % of the posterior lie between low and high
  double high = 1;
};
RateEstimate failure_rate(std::int64_t failures, std::int64_t passes);
// The posterior probability that the rate is between 1 % and 99 %: that the configuration has more than one outcome.
double flaky_confidence(std::int64_t failures, std::int64_t passes);
// Starts without a failure after which a flake of this rate has been ruled out with this confidence: the least n with
// 1 - (1 - rate)^n >= confidence.
std::int64_t starts_to_rule_out(double rate, double confidence);

// One explanation of the flaky failures: a setting, or (factor -1) every start alike.
struct FlakySuspect {
  int factor = -1;
  int value = 0;
  std::int64_t failures = 0;  // starts with it that failed, and
  std::int64_t starts = 0;    // all starts with it, without those that contain a set that always fails
  double probability = 0;
};

// Every explanation with a probability above zero, the likeliest first; none when nothing is flaky. Each setting and "every start" are
// equally likely before; an explanation with n starts and k failures has the likelihood B(k + 1, n - k + 1), its unknown rate integrated
// out over a uniform prior, if all failures are within it, else 0.
std::vector<FlakySuspect> flaky_suspects(const Knowledge& knowledge, const std::vector<FailingSet>& sets);

// Starts that contain the value and no set that always fails.
std::int64_t exposures(const Knowledge& knowledge, const std::vector<FailingSet>& sets, int factor, int value);

bool contains_any(const Configuration& configuration, const std::vector<FailingSet>& sets);

}  // namespace reckoner::trials
