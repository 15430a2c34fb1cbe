// A server that exists only as a rule, for tests of the strategy: seven settings of three values.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "diagnose/trials/strategy.h"

namespace reckoner::trials {

inline constexpr int kFactors = 7;
inline constexpr int kValues = 3;

// f0 to f6, each with the values a, b and c; the baseline is all a.
inline TrialFile seven_factors(const std::string& more = "") {
  std::string text = "name = \"seven\"\n[target]\ncommand = [\"server\"]\n";
  for (int i = 0; i < kFactors; ++i) text += fmt::format("[[factor]]\nname = \"f{}\"\nvalues = [\"a\", \"b\", \"c\"]\n", i);
  return parse_trial_file(text + more, "seven.toml", "/").value();
}

struct SimulatedTarget {
  std::function<bool(const Configuration&)> always_fails = [](const Configuration&) { return false; };
  std::function<double(const Configuration&)> failure_rate = [](const Configuration&) { return 0.0; };
  int ignored = -1;             // a factor that the server does not look at
  std::vector<int> not_told{};  // factors whose effective value cannot be read back
  std::mt19937_64 random{1};

  Observation start(const TrialFile& file, const NextStart& next, const std::vector<Observation>& before) {
    Observation observation{.number = static_cast<std::int64_t>(before.size()) + 1, .asked = next.configuration};
    Configuration used = next.configuration;
    if (ignored >= 0) used[static_cast<std::size_t>(ignored)] = 0;
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (std::find(not_told.begin(), not_told.end(), static_cast<int>(i)) != not_told.end()) continue;
      const Factor& factor = file.factors[i].factor;
      observation.effective.push_back({factor.name, factor.values[static_cast<std::size_t>(used[i])]});
    }
    // As the runner does: what is known is not probed again.
    for (const Observation& earlier : before) {
      if (next.is_repeat || !earlier.probed || !equal_in_effect(file, earlier, observation)) continue;
      observation.probed = false;
      observation.outcome = earlier.outcome;
      return observation;
    }
    const bool flake = std::uniform_real_distribution(0.0, 1.0)(random) < failure_rate(used);
    if (always_fails(used) || flake) observation.outcome = Outcome::nan;
    return observation;
  }
};

// Starts until the plan has no more, or `most` have been made. `watch` sees the plan before each start.
inline std::vector<Observation> run_simulated(const TrialFile& file, SimulatedTarget& target, std::uint64_t seed, std::int64_t most,
                                              const std::function<void(const Plan&, const std::vector<Observation>&)>& watch) {
  std::vector<Observation> observations;
  for (;;) {
    const Plan plan = plan_next(file, observations, seed);
    watch(plan, observations);
    if (!plan.next || static_cast<std::int64_t>(observations.size()) == most) return observations;
    observations.push_back(target.start(file, *plan.next, observations));
  }
}

}  // namespace reckoner::trials
