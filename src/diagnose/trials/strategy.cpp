#include "diagnose/trials/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/trials/flakes.h"
#include "diagnose/trials/isolate.h"
#include "diagnose/trials/rows.h"

namespace reckoner::trials {
namespace {

// Starts that fail before a failure counts as stable: a flake of 20 % fails all of two starts in 4 %, of three in 0.8 %.
constexpr std::int64_t kConfirmations = 2;
constexpr std::int64_t kConfirmationsBesideFlakes = 3;
constexpr std::int64_t kDisputedConfirmations = 4;  // when a configuration that contains the same settings has passed
constexpr double kFlakySettingIsKnown = 0.9;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class Planner {
 public:
  Planner(const TrialFile& file, const std::vector<Observation>& observations, std::uint64_t seed)
      : file_(file), knowledge_(file, observations), seed_(seed + observations.size()) {}

  Plan plan() {
    plan_.next = listed();
    if (!plan_.next && file_.strategy == Strategy::isolate) plan_.next = baseline();
    // In a listed run, too: what its trials say about sets is worth knowing.
    const std::optional<NextStart> isolating = explain_failures();
    if (file_.strategy == Strategy::listed || plan_.next) return std::move(plan_);
    plan_.next = isolating;
    if (plan_.next) return std::move(plan_);
    const std::optional<Configuration> reference = knowledge_.reference();
    if (!reference) {
      plan_.next = look_for_a_pass();
      return std::move(plan_);
    }
    plan_.next = single_value(*reference);
    if (!plan_.next) plan_.next = companion();
    if (!plan_.next) plan_.next = row_of_pairs(*reference);
    if (!plan_.next) plan_.next = look_for_flakes(*reference);
    return std::move(plan_);
  }

 private:
  NextStart start(const Configuration& configuration, std::string purpose) const {
    return {
        .configuration = configuration, .purpose = std::move(purpose), .is_repeat = knowledge_.status(configuration) != Stability::unknown};
  }
  // The configuration as asked before, so that a repeat asks the same.
  NextStart repeat(const Configuration& configuration, std::string_view why) const {
    const Count count = knowledge_.count(configuration);
    const std::int64_t first = count.trials.front();
    for (const Observation& observation : knowledge_.observations()) {
      if (observation.number == first) {
        return {.configuration = observation.asked, .purpose = fmt::format("repeat of trial {}: {}", first, why), .is_repeat = true};
      }
    }
    return start(configuration, std::string(why));
  }
  bool was_started(const Configuration& configuration) const { return knowledge_.status(configuration) != Stability::unknown; }
  bool may_start(const Configuration& configuration) const {
    return !knowledge_.is_excluded(configuration) && !contains_any(configuration, plan_.sets);
  }

  std::optional<NextStart> listed() const {
    for (std::size_t i = 0; i < file_.listed.size(); ++i) {
      const bool asked = std::any_of(knowledge_.observations().begin(), knowledge_.observations().end(),
                                     [&](const Observation& one) { return one.asked == file_.listed[i]; });
      // One that the trials have shown to be another one in effect is not started.
      if (!asked && !was_started(file_.listed[i])) return start(file_.listed[i], fmt::format("configuration {} of the list", i + 1));
    }
    return std::nullopt;
  }

  std::optional<NextStart> baseline() const {
    const Count count = knowledge_.count(knowledge_.baseline());
    if (count.status() == Stability::unknown) return start(knowledge_.baseline(), "baseline");
    if (count.status() == Stability::fails && count.failures < kConfirmations) {
      return repeat(knowledge_.baseline(), "does the baseline always fail?");
    }
    return std::nullopt;
  }

  // The failing configurations in the order in which they were first started.
  std::vector<std::pair<Configuration, Count>> failures() const {
    std::vector<std::pair<Configuration, Count>> failing;
    for (const auto& [configuration, count] : knowledge_.counts()) {
      if (count.status() == Stability::fails) failing.emplace_back(configuration, count);
    }
    std::sort(failing.begin(), failing.end(), [](const auto& a, const auto& b) { return a.second.trials < b.second.trials; });
    return failing;
  }

  // Fills plan_.sets and plan_.open; gives the first start that a failure needs to be explained.
  std::optional<NextStart> explain_failures() {
    std::optional<NextStart> next;
    for (const auto& [configuration, count] : failures()) {
      if (contains_any(configuration, plan_.sets)) continue;
      const std::optional<NextStart> asked = explain(configuration, count);
      if (asked && !next) next = asked;
      if (asked || !contains_any(configuration, plan_.sets)) plan_.open.push_back({configuration});
    }
    return next;
  }

  std::optional<NextStart> explain(const Configuration& configuration, const Count& count) {
    const std::optional<Configuration> passing = knowledge_.nearest_passing(configuration);
    if (!passing) return std::nullopt;
    if (count.failures < kConfirmations) return repeat(configuration, "is its failure stable?");
    const std::variant<Ask, FailingSet> step = isolate(knowledge_, *passing, configuration);
    if (const Ask* ask = std::get_if<Ask>(&step)) {
      return start(ask->configuration, fmt::format("isolating the failure of trial {}", count.trials.front()));
    }
    return confirm(std::get<FailingSet>(step));
  }

  // A set that has failed often enough is kept; else what is missing.
  std::optional<NextStart> confirm(const FailingSet& found) {
    const std::optional<Configuration> contradicts = passing_with(found.set);
    const std::int64_t failures = knowledge_.count(found.fails).failures;
    if (failures < (contradicts ? kDisputedConfirmations : flakes_were_seen() ? kConfirmationsBesideFlakes : kConfirmations))
      return repeat(found.fails, "is its failure stable?");
    if (!contradicts) {
      plan_.sets.push_back(found);
      return std::nullopt;
    }
    // It passes in other company: settings of `from` have a part in it.
    const std::variant<Ask, FailingSet> step = isolate(knowledge_, *contradicts, found.fails);
    if (const Ask* ask = std::get_if<Ask>(&step)) return start(ask->configuration, "isolating what else the failure takes");
    FailingSet both = std::get<FailingSet>(step);
    for (std::size_t i = 0; i < both.set.size(); ++i) both.set[i] = found.set[i] >= 0 ? found.set[i] : both.set[i];
    both.fails = found.fails;
    plan_.sets.push_back(both);
    return std::nullopt;
  }

  bool flakes_were_seen() const {
    return std::any_of(knowledge_.counts().begin(), knowledge_.counts().end(),
                       [](const auto& entry) { return entry.second.status() == Stability::flaky; });
  }

  std::optional<Configuration> passing_with(const Assignment& set) const {
    for (const auto& [configuration, count] : knowledge_.counts()) {
      if (count.passes > 0 && contains(configuration, set)) return configuration;
    }
    return std::nullopt;
  }
  bool has_passed(int factor, int value) const {
    Assignment part(at(knowledge_.factors()), -1);
    part[at(factor)] = value;
    return passing_with(part).has_value();
  }

  // Each value alone, the others as in the reference. Beside a reference that is not the baseline only values that never passed.
  std::optional<NextStart> single_value(const Configuration& reference) const {
    const bool is_baseline = reference == knowledge_.baseline();
    for (int factor = 0; factor < knowledge_.factors(); ++factor) {
      for (int value = 0; value < knowledge_.values(factor); ++value) {
        Configuration one = reference;
        one[at(factor)] = value;
        if (was_started(one) || !may_start(one) || (!is_baseline && has_passed(factor, value))) continue;
        return start(one, fmt::format("{}={} alone", file_.factors[at(factor)].factor.name, label(factor, value)));
      }
    }
    return std::nullopt;
  }

  const std::string& label(int factor, int value) const { return file_.factors[at(factor)].factor.values[at(value)]; }

  // A failing set with everything else changed: a failure that then goes away takes more than the set.
  std::optional<NextStart> companion() const {
    for (std::size_t i = 0; i < plan_.sets.size(); ++i) {
      const FailingSet& one = plan_.sets[i];
      std::vector<FailingSet> others = plan_.sets;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      RowChoice choice{.values = {},
                       .is_allowed = [&](const Configuration& row) { return !knowledge_.is_excluded(row) && !contains_any(row, others); }};
      int changeable = 0;
      for (int factor = 0; factor < knowledge_.factors(); ++factor) {
        std::vector<int> values = {one.from[at(factor)]};
        if (one.set[at(factor)] >= 0) values = {one.set[at(factor)]};
        if (one.set[at(factor)] < 0) {
          for (const int value : knowledge_.distinct_values(factor)) {
            if (value != values.front()) values.push_back(value);
          }
          changeable += values.size() > 1 ? 1 : 0;
        }
        choice.values.push_back(values);
      }
      choice.worth = [&](const Configuration& row) { return static_cast<double>(differences(row, one.fails).size()); };
      choice.seed = seed_;
      const std::optional<Configuration> row = best_row(choice);
      if (!row || changeable == 0 || has_companion(one, choice.worth(*row))) continue;
      return start(*row, fmt::format("{} with everything else changed", text(settings_in(one.set))));
    }
    return std::nullopt;
  }
  // Whether the set has failed where nearly as much was changed.
  bool has_companion(const FailingSet& one, double most) const {
    return std::any_of(knowledge_.counts().begin(), knowledge_.counts().end(), [&](const auto& entry) {
      return entry.second.status() == Stability::fails && contains(entry.first, one.set) &&
             static_cast<double>(differences(entry.first, one.fails).size()) >= std::min(most, std::ceil(most / 2));
    });
  }

  Settings settings_in(const Assignment& set) const {
    Settings settings;
    for (int factor = 0; factor < knowledge_.factors(); ++factor) {
      if (set[at(factor)] >= 0) settings.push_back({file_.factors[at(factor)].factor.name, label(factor, set[at(factor)])});
    }
    return settings;
  }

  std::vector<std::vector<int>> all_values() const {
    std::vector<std::vector<int>> values;
    for (int factor = 0; factor < knowledge_.factors(); ++factor) values.push_back(knowledge_.distinct_values(factor));
    return values;
  }

  // A row of values whose pairs have not been seen to pass.
  std::optional<NextStart> row_of_pairs(const Configuration& reference) const {
    ValuePairs covered;
    for (const auto& [configuration, count] : knowledge_.counts()) {
      if (count.passes > 0) covered.merge(pairs_in(configuration));
    }
    const auto worth = [&](const Configuration& row) {
      double pairs = 0;
      for (const ValuePair& pair : pairs_in(row)) {
        // With one value of the reference it is a single value, which has been started.
        const bool is_single = reference[at(pair.factor_a)] == pair.value_a || reference[at(pair.factor_b)] == pair.value_b;
        if (!is_single && !covered.contains(pair)) ++pairs;
      }
      return pairs;
    };
    const std::optional<Configuration> row =
        best_row({.values = all_values(),
                  .is_allowed = [&](const Configuration& one) { return may_start(one) && !was_started(one); },
                  .worth = worth,
                  .seed = seed_});
    if (!row) return std::nullopt;
    return start(*row, fmt::format("{} pairs of values that were not together before", worth(*row)));
  }

  // Nothing has passed: rows of new pairs and single changes of the baseline in turn.
  std::optional<NextStart> look_for_a_pass() const {
    ValuePairs covered;
    for (const auto& [configuration, count] : knowledge_.counts()) covered.merge(pairs_in(configuration));
    const auto worth = [&](const Configuration& row) {
      double pairs = 0;
      for (const ValuePair& pair : pairs_in(row)) pairs += covered.contains(pair) ? 0 : 1;
      return pairs;
    };
    const std::optional<Configuration> row =
        best_row({.values = all_values(),
                  .is_allowed = [&](const Configuration& one) { return !knowledge_.is_excluded(one) && !was_started(one); },
                  .worth = worth,
                  .seed = seed_});
    const std::optional<NextStart> single = single_value(knowledge_.baseline());
    const bool rows_turn = knowledge_.observations().size() % 2 == 0;
    if (row && (rows_turn || !single)) return start(*row, "looking for a configuration that passes");
    return single;
  }

  std::optional<NextStart> look_for_flakes(const Configuration& reference) const {
    const std::vector<FlakySuspect> suspects = flaky_suspects(knowledge_, plan_.sets);
    if (!suspects.empty()) return narrow_down(reference, suspects);
    const std::int64_t enough = starts_to_rule_out(file_.limits.flake_rate, file_.limits.flake_confidence);
    std::vector<std::vector<double>> missing(at(knowledge_.factors()));
    for (int factor = 0; factor < knowledge_.factors(); ++factor) {
      for (int value = 0; value < knowledge_.values(factor); ++value) {
        const auto starts = exposures(knowledge_, plan_.sets, factor, value);
        missing[at(factor)].push_back(static_cast<double>(std::max<std::int64_t>(0, enough - starts)));
      }
    }
    const auto worth = [&](const Configuration& row) {
      double sum = 0;
      for (std::size_t factor = 0; factor < row.size(); ++factor) sum += missing[factor][at(row[factor])];
      return sum;
    };
    const std::optional<Configuration> row = best_row(
        {.values = all_values(), .is_allowed = [&](const Configuration& one) { return may_start(one); }, .worth = worth, .seed = seed_});
    if (!row) return std::nullopt;
    return start(*row, "looking for failures that come and go");
  }

  // A start that contains about half of what may be behind the flaky failures.
  std::optional<NextStart> narrow_down(const Configuration& reference, const std::vector<FlakySuspect>& suspects) const {
    if (suspects.front().probability >= kFlakySettingIsKnown || suspects.size() == 1) return std::nullopt;
    double settings = 0;
    for (const FlakySuspect& suspect : suspects) settings += suspect.factor >= 0 ? suspect.probability : 0;
    const auto worth = [&](const Configuration& row) {
      double inside = 0;
      for (const FlakySuspect& suspect : suspects) {
        if (suspect.factor >= 0 && row[at(suspect.factor)] == suspect.value) inside += suspect.probability;
      }
      // Near half of it; of equals, the one with fewer changes.
      return 1 - std::abs(inside - settings / 2) - 1e-6 * static_cast<double>(differences(row, reference).size());
    };
    const std::optional<Configuration> row = best_row(
        {.values = all_values(), .is_allowed = [&](const Configuration& one) { return may_start(one); }, .worth = worth, .seed = seed_});
    if (!row) return std::nullopt;
    return start(*row, "narrowing down a failure that comes and goes");
  }

  const TrialFile& file_;
  Knowledge knowledge_;
  std::uint64_t seed_;
  Plan plan_;
};

}  // namespace

Plan plan_next(const TrialFile& file, const std::vector<Observation>& observations, std::uint64_t seed) {
  return Planner(file, observations, seed).plan();
}

}  // namespace reckoner::trials
