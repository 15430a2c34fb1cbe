#include "diagnose/trials/verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "diagnose/trials/flakes.h"

namespace reckoner::trials {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// "trial 3", "trials 3, 4 and 9"
std::string trials_text(const std::vector<std::int64_t>& numbers) {
  if (numbers.size() == 1) return fmt::format("trial {}", numbers.front());
  std::string list;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) list += i + 1 == numbers.size() ? " and " : ", ";
    list += std::to_string(numbers[i]);
  }
  return "trials " + list;
}

std::string joined(const std::vector<std::string>& words, std::string_view last = " and ") {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) list += i + 1 == words.size() ? std::string(last) : ", ";
    list += words[i];
  }
  return list;
}

std::vector<std::string> texts(const Settings& settings) {
  std::vector<std::string> words;
  for (const Setting& setting : settings) words.push_back(setting.name + "=" + setting.value);
  return words;
}

std::string quoted(const Evidence& evidence) {
  if (evidence.line == 0) return evidence.text;
  return fmt::format("{}:{}: {}", evidence.file, evidence.line, evidence.text);
}

class Conclusion {
 public:
  Conclusion(const VerdictInput& input, std::vector<Observation> observations)
      : input_(input),
        file_(input.file),
        knowledge_(input.file, std::move(observations)),
        plan_(plan_next(input.file, knowledge_.observations(), input.seed)) {}

  std::vector<Verdict> run() {
    if (knowledge_.observations().empty()) return {};
    overall();
    for (const FailingSet& set : plan_.sets) failing_set(set);
    flaky();
    equal_configurations();
    for (int factor = 0; factor < knowledge_.factors(); ++factor) effect_of(factor);
    never_varied();
    for (const OpenFailure& failure : plan_.open) open_failure(failure);
    if (has_failures()) {
      for (int factor = 0; factor < knowledge_.factors(); ++factor) eliminated(factor);
    }
    patterns();
    leftovers();
    budget();
    return std::move(verdicts_);
  }

 private:
  const Trial& trial(std::int64_t number) const {
    return *std::find_if(input_.trials.begin(), input_.trials.end(), [&](const Trial& one) { return one.number == number; });
  }
  Settings settings_in(const Assignment& set) const {
    Settings settings;
    for (int factor = 0; factor < knowledge_.factors(); ++factor) {
      if (set[at(factor)] >= 0) settings.push_back({factor_of(factor).name, factor_of(factor).values[at(set[at(factor)])]});
    }
    return settings;
  }
  const Factor& factor_of(int factor) const { return file_.factors[at(factor)].factor; }
  bool has_failures() const {
    return std::any_of(knowledge_.observations().begin(), knowledge_.observations().end(),
                       [](const Observation& one) { return one.failed(); });
  }

  void overall() {
    std::vector<std::int64_t> numbers;
    std::map<std::string_view, std::int64_t> outcomes;
    std::int64_t passes = 0;
    for (const Observation& one : knowledge_.observations()) {
      numbers.push_back(one.number);
      passes += one.failed() ? 0 : 1;
      ++outcomes[description(one.outcome)];
    }
    if (passes > 0 && has_failures()) return;
    const bool all = passes > 0;
    std::vector<std::string> counts;
    for (const auto& [what, count] : outcomes) counts.push_back(fmt::format("{} {}", count, what));
    const std::string starts = fmt::format("{} {}", numbers.size(), numbers.size() == 1 ? "start" : "starts");
    verdicts_.push_back({.kind = all ? VerdictKind::all_passed : VerdictKind::none_passed,
                         .trials = numbers,
                         .text = all ? fmt::format("Every trial passed ({}).", starts)
                                     : fmt::format("No configuration passed ({}: {}).", starts, joined(counts))});
  }

  // The rate at which starts fail by chance, as far as is known.
  double chance_rate() const {
    const std::vector<FlakySuspect> suspects = flaky_suspects(knowledge_, plan_.sets);
    if (suspects.empty()) return file_.limits.flake_rate;
    return failure_rate(suspects.front().failures, suspects.front().starts - suspects.front().failures).mean;
  }

  // Starts that failed with the set in them; none that had it has passed.
  std::int64_t failures_with(const Assignment& set) const {
    return std::count_if(knowledge_.observations().begin(), knowledge_.observations().end(), [&](const Observation& one) {
      return one.probed && one.failed() && contains(knowledge_.canonical(one.asked), set);
    });
  }

  // 1 - rate ^ failures: the probability that a configuration that fails by chance at this rate would not have failed every time.
  void failing_set(const FailingSet& set) {
    const Count count = knowledge_.count(set.fails);
    const Trial& first = trial(count.trials.front());
    Verdict verdict{.kind = VerdictKind::minimal_failing_set,
                    .settings = settings_in(set.set),
                    .from = settings_of(file_, set.from),
                    .trials = count.trials,
                    .confidence = 1 - std::pow(chance_rate(), static_cast<double>(failures_with(set.set)))};
    verdict.text = fmt::format("{} {}: {}{} (trial {}, {} of {} starts; {}).", joined(texts(verdict.settings), " with "),
                               verdict.settings.size() == 1 ? "fails" : "fail together", description(first.outcome),
                               first.where.empty() ? "" : " in " + first.where, first.number, count.failures, count.failures + count.passes,
                               quoted(first.evidence));
    std::vector<std::string> alone;
    for (int factor = 0; factor < knowledge_.factors(); ++factor) {
      if (set.set[at(factor)] < 0 || verdict.settings.size() < 2) continue;
      Configuration without = set.fails;
      without[at(factor)] = set.from[at(factor)];
      const Count passing = knowledge_.count(without);
      if (passing.passes == 0) continue;
      alone.push_back(fmt::format("{} (trial {})", factor_of(factor).name, passing.trials.front()));
      verdict.trials.push_back(passing.trials.front());
    }
    const Count reference = knowledge_.count(set.from);
    if (!alone.empty()) verdict.text += fmt::format(" It passes when {} is changed.", joined(alone, " or "));
    if (reference.passes > 0) verdict.trials.push_back(reference.trials.front());
    std::sort(verdict.trials.begin(), verdict.trials.end());
    verdict.trials.erase(std::unique(verdict.trials.begin(), verdict.trials.end()), verdict.trials.end());
    verdicts_.push_back(std::move(verdict));
  }

  void open_failure(const OpenFailure& failure) {
    const Count count = knowledge_.count(failure.configuration);
    const Trial& first = trial(count.trials.front());
    Verdict verdict{.kind = VerdictKind::unconfirmed_failure, .settings = first.settings, .trials = count.trials};
    verdict.confidence = 1 - std::pow(chance_rate(), static_cast<double>(count.failures));
    verdict.text = fmt::format(
        "{} fails ({}: {}), and the settings behind it were not isolated.",
        count.trials.size() == 1 ? "Trial " + std::to_string(first.number) : "The configuration of " + trials_text(count.trials),
        description(first.outcome), quoted(first.evidence));
    verdicts_.push_back(std::move(verdict));
  }

  void flaky() {
    for (const auto& [configuration, count] : knowledge_.counts()) {
      if (count.status() != Stability::flaky) continue;
      const RateEstimate rate = failure_rate(count.failures, count.passes);
      std::int64_t failed = 0;
      for (const std::int64_t number : count.trials) failed = failed == 0 && trial(number).outcome != Outcome::pass ? number : failed;
      const Trial& example = trial(failed);
      verdicts_.push_back(
          {.kind = VerdictKind::flaky,
           .settings = example.settings,
           .trials = count.trials,
           .confidence = flaky_confidence(count.failures, count.passes),
           .text = fmt::format("{} had one configuration and not one outcome: {} of {} starts failed ({} in trial {}: {}); its failure "
                               "rate is between {:.0f} % and {:.0f} % (95 %).",
                               trials_text(count.trials), count.failures, count.failures + count.passes, description(example.outcome),
                               failed, quoted(example.evidence), 100 * rate.low, 100 * rate.high)});
      verdicts_.back().text[0] = 'T';
    }
    const std::vector<FlakySuspect> suspects = flaky_suspects(knowledge_, plan_.sets);
    if (!suspects.empty()) flaky_setting(suspects);
  }

  std::string name_of(const FlakySuspect& suspect) const {
    if (suspect.factor < 0) return "every start alike";
    return fmt::format("{}={}", factor_of(suspect.factor).name, factor_of(suspect.factor).values[at(suspect.value)]);
  }
  void flaky_setting(const std::vector<FlakySuspect>& suspects) {
    const FlakySuspect& first = suspects.front();
    Verdict verdict{.kind = VerdictKind::flaky_setting, .confidence = first.probability};
    if (first.factor >= 0) verdict.settings.push_back({factor_of(first.factor).name, factor_of(first.factor).values[at(first.value)]});
    for (const Observation& one : knowledge_.observations()) {
      const Configuration configuration = knowledge_.canonical(one.asked);
      const bool inside = first.factor < 0 || configuration[at(first.factor)] == first.value;
      if (one.probed && inside && one.failed() && !contains_any(configuration, plan_.sets)) verdict.trials.push_back(one.number);
    }
    verdict.text =
        fmt::format("The failures that come and go are best explained by {} (probability {:.2f}; {} of {} starts with it failed)",
                    name_of(first), first.probability, first.failures, first.starts);
    for (std::size_t i = 1; i < std::min<std::size_t>(3, suspects.size()); ++i) {
      verdict.text += fmt::format("{} {} ({:.2f})", i == 1 ? ", then by" : ",", name_of(suspects[i]), suspects[i].probability);
    }
    verdict.text += ".";
    verdicts_.push_back(std::move(verdict));
  }

  // Groups of trials that asked for different things and got the same.
  void equal_configurations() {
    const std::vector<Observation>& all = knowledge_.observations();
    std::set<std::size_t> grouped;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (grouped.contains(i)) continue;
      Verdict verdict{.kind = VerdictKind::equal_configurations, .trials = {all[i].number}};
      std::set<Configuration> asked = {all[i].asked};
      for (std::size_t j = i + 1; j < all.size(); ++j) {
        if (!equal_in_effect(file_, all[i], all[j])) continue;
        grouped.insert(j);
        verdict.trials.push_back(all[j].number);
        asked.insert(all[j].asked);
      }
      if (asked.size() < 2) continue;
      verdict.settings = all[i].effective;
      verdict.text =
          fmt::format("{} asked for {} different configurations and were one in effect.", trials_text(verdict.trials), asked.size());
      verdict.text[0] = 'T';
      verdicts_.push_back(std::move(verdict));
    }
  }

  // What became of each value of a factor: inert when all became the same, overridden when some did.
  void effect_of(int factor) {
    const Factor& spec = factor_of(factor);
    std::map<int, std::set<std::string>> became;
    std::vector<std::int64_t> numbers;
    for (const Observation& one : knowledge_.observations()) {
      const std::optional<std::string> value = find(one.effective, spec.effective_key);
      if (!value) continue;
      became[one.asked[at(factor)]].insert(*value);
      numbers.push_back(one.number);
    }
    if (became.empty()) return unseen_effect_of(factor);
    if (became.size() < 2) return;
    std::set<std::string> all;
    for (const auto& [value, effective] : became) all.insert(effective.begin(), effective.end());
    if (all.size() == 1) {
      Verdict verdict{.kind = VerdictKind::inert, .trials = numbers};
      std::vector<std::string> labels;
      for (const auto& entry : became) {
        labels.push_back(spec.values[at(entry.first)]);
        verdict.settings.push_back({spec.name, labels.back()});
      }
      verdict.text =
          fmt::format("{} has no effect: whether {} was asked for, the server took {}.", spec.name, joined(labels, " or "), *all.begin());
      verdicts_.push_back(std::move(verdict));
      return;
    }
    for (auto a = became.begin(); a != became.end(); ++a) {
      for (auto b = became.begin(); b != a; ++b) {
        if (a->second.size() != 1 || a->second != b->second) continue;
        overridden(factor, a->first, b->first, *a->second.begin());
        break;
      }
    }
  }

  void overridden(int factor, int value, int other, const std::string& effective) {
    const Factor& spec = factor_of(factor);
    Verdict verdict{.kind = VerdictKind::overridden};
    for (const int one : {other, value}) verdict.settings.push_back({spec.name, spec.values[at(one)]});
    for (const Observation& one : knowledge_.observations()) {
      const int asked = one.asked[at(factor)];
      if ((asked == value || asked == other) && find(one.effective, spec.effective_key)) verdict.trials.push_back(one.number);
    }
    verdict.text = fmt::format("{}={} and {}={} are the same in effect: the server took {} for both.", spec.name, spec.values[at(other)],
                               spec.name, spec.values[at(value)], effective);
    verdicts_.push_back(std::move(verdict));
  }

  // A factor whose effective value cannot be read back: equal answers of trials that differ in nothing else are all there is to go by.
  void unseen_effect_of(int factor) {
    Verdict verdict{.kind = VerdictKind::inert, .confidence = 0.5};
    std::set<int> values;
    for (const Trial& a : input_.trials) {
      for (const Trial& b : input_.trials) {
        if (!is_comparable(a) || !is_comparable(b) || b.number >= a.number) continue;
        const Configuration one = values_of(file_, a.settings).value();
        const Configuration other = values_of(file_, b.settings).value();
        if (differences(one, other) != std::vector<int>{factor}) continue;
        if (a.fingerprint != b.fingerprint || a.outcome != b.outcome) return;
        values.insert({one[at(factor)], other[at(factor)]});
        for (const std::int64_t number : {b.number, a.number}) verdict.trials.push_back(number);
      }
    }
    if (values.size() < 2) return;
    std::sort(verdict.trials.begin(), verdict.trials.end());
    verdict.trials.erase(std::unique(verdict.trials.begin(), verdict.trials.end()), verdict.trials.end());
    for (const int value : values) verdict.settings.push_back({factor_of(factor).name, factor_of(factor).values[at(value)]});
    verdict.text =
        fmt::format("{} may have no effect: the answers were the same with {}. What became of it cannot be read back from this server.",
                    factor_of(factor).name, joined(texts(verdict.settings)));
    verdicts_.push_back(std::move(verdict));
  }
  static bool is_comparable(const Trial& trial) { return trial.ended && trial.same_as == 0 && !trial.fingerprint.empty(); }

  void never_varied() {
    for (const Setting& setting : file_.fixed) {
      verdicts_.push_back({.kind = VerdictKind::never_varied,
                           .settings = {setting},
                           .text = fmt::format("{} was never varied: every trial ran with {}.", setting.name, setting.value)});
    }
    for (int factor = 0; factor < knowledge_.factors(); ++factor) {
      std::set<int> started;
      for (const Observation& one : knowledge_.observations()) started.insert(one.asked[at(factor)]);
      if (started.size() != 1) continue;
      const Setting setting{factor_of(factor).name, factor_of(factor).values[at(*started.begin())]};
      verdicts_.push_back({.kind = VerdictKind::never_varied,
                           .settings = {setting},
                           .text = fmt::format("{} was never varied: every trial so far ran with {}.", setting.name, setting.value)});
    }
  }

  // Values that were part of something that passed.
  void eliminated(int factor) {
    Verdict verdict{.kind = VerdictKind::eliminated};
    std::vector<std::string> parts;
    for (int value = 0; value < knowledge_.values(factor); ++value) {
      for (const Observation& one : knowledge_.observations()) {
        if (one.failed() || one.asked[at(factor)] != value) continue;
        verdict.settings.push_back({factor_of(factor).name, factor_of(factor).values[at(value)]});
        verdict.trials.push_back(one.number);
        parts.push_back(fmt::format("{} (trial {})", verdict.settings.back().value, one.number));
        break;
      }
    }
    if (parts.empty()) return;
    verdict.text = fmt::format("{}: {} {} in a configuration that passed, so {} alone.", factor_of(factor).name, joined(parts),
                               parts.size() == 1 ? "was" : "were each", parts.size() == 1 ? "it is no cause" : "none of them is a cause");
    verdicts_.push_back(std::move(verdict));
  }

  void patterns() {
    for (const PatternSpec& pattern : file_.patterns) {
      Verdict verdict{.kind = VerdictKind::pattern, .name = pattern.name};
      const PatternMatch* first = nullptr;
      std::int64_t failed = 0;
      for (const Trial& one : input_.trials) {
        for (const PatternMatch& match : one.patterns) {
          if (match.pattern != pattern.name) continue;
          if (first == nullptr) first = &match;
          verdict.trials.push_back(one.number);
          failed += one.outcome != Outcome::pass ? 1 : 0;
        }
      }
      if (first == nullptr) continue;
      verdict.text = fmt::format("{} '{}' in {} of {} trials, {} of which failed ({}).", pattern.outcome ? "Message" : "Warning",
                                 pattern.name, verdict.trials.size(), input_.trials.size(), failed, quoted(first->evidence));
      verdicts_.push_back(std::move(verdict));
    }
  }

  void leftovers() {
    for (const Trial& one : input_.trials) {
      if (one.leftovers.empty()) continue;
      verdicts_.push_back({.kind = VerdictKind::leftover,
                           .trials = {one.number},
                           .text = fmt::format("Trial {} did not stop cleanly: {}.", one.number, joined(one.leftovers, "; "))});
    }
  }

  void budget() {
    const auto starts = static_cast<std::int64_t>(knowledge_.observations().size());
    if (!plan_.next || starts < input_.max_starts) return;
    verdicts_.push_back(
        {.kind = VerdictKind::budget_spent,
         .text = fmt::format("The search ended after {} starts, as asked; it would have gone on with: {}.", starts, plan_.next->purpose)});
  }

  const VerdictInput& input_;
  const TrialFile& file_;
  Knowledge knowledge_;
  Plan plan_;
  std::vector<Verdict> verdicts_;
};

}  // namespace

Result<std::vector<Verdict>> conclude(const VerdictInput& input) {
  std::vector<Observation> observations = TRY(observations_of(input.file, input.trials));
  return Conclusion(input, std::move(observations)).run();
}

}  // namespace reckoner::trials
