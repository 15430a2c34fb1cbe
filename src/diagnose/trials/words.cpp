// The names of outcomes and verdicts, and settings as text.
#include <fmt/format.h>

#include "diagnose/trials/ledger.h"

namespace reckoner::trials {
namespace {

struct OutcomeWords {
  Outcome outcome;
  std::string_view name;
  std::string_view description;
};

constexpr OutcomeWords kOutcomeWords[] = {
    {Outcome::pass, "pass", "passes"},
    {Outcome::slow, "slow", "slow"},
    {Outcome::no_start, "no_start", "does not start"},
    {Outcome::wrong_architecture, "wrong_architecture", "wrong architecture"},
    {Outcome::out_of_memory, "out_of_memory", "out of memory"},
    {Outcome::assertion, "assertion", "assertion"},
    {Outcome::nan, "nan", "NaN"},
    {Outcome::garbage, "garbage", "garbage"},
    {Outcome::empty, "empty", "empty answer"},
    {Outcome::wrong, "wrong", "wrong answer"},
    {Outcome::refused, "refused", "request refused"},
    {Outcome::hang, "hang", "hang"},
    {Outcome::crash, "crash", "crash"},
};

struct VerdictWords {
  VerdictKind kind;
  std::string_view name;
};

constexpr VerdictWords kVerdictWords[] = {
    {VerdictKind::none_passed, "none_passed"},
    {VerdictKind::all_passed, "all_passed"},
    {VerdictKind::minimal_failing_set, "minimal_failing_set"},
    {VerdictKind::unconfirmed_failure, "unconfirmed_failure"},
    {VerdictKind::flaky, "flaky"},
    {VerdictKind::flaky_setting, "flaky_setting"},
    {VerdictKind::equal_configurations, "equal_configurations"},
    {VerdictKind::inert, "inert"},
    {VerdictKind::overridden, "overridden"},
    {VerdictKind::eliminated, "eliminated"},
    {VerdictKind::never_varied, "never_varied"},
    {VerdictKind::pattern, "pattern"},
    {VerdictKind::leftover, "leftover"},
    {VerdictKind::budget_spent, "budget_spent"},
};

}  // namespace

std::string_view name(Outcome outcome) {
  for (const OutcomeWords& words : kOutcomeWords) {
    if (words.outcome == outcome) return words.name;
  }
  return "";
}

std::string_view description(Outcome outcome) {
  for (const OutcomeWords& words : kOutcomeWords) {
    if (words.outcome == outcome) return words.description;
  }
  return "";
}

std::optional<Outcome> outcome_from(std::string_view name) {
  for (const OutcomeWords& words : kOutcomeWords) {
    if (words.name == name) return words.outcome;
  }
  return std::nullopt;
}

std::string_view name(VerdictKind kind) {
  for (const VerdictWords& words : kVerdictWords) {
    if (words.kind == kind) return words.name;
  }
  return "";
}

std::optional<VerdictKind> verdict_kind_from(std::string_view name) {
  for (const VerdictWords& words : kVerdictWords) {
    if (words.name == name) return words.kind;
  }
  return std::nullopt;
}

std::string text(const Settings& settings) {
  std::string joined;
  for (const Setting& setting : settings) {
    if (!joined.empty()) joined += ' ';
    joined += fmt::format("{}={}", setting.name, setting.value);
  }
  return joined;
}

std::optional<std::string> find(const Settings& settings, std::string_view name) {
  for (const Setting& setting : settings) {
    if (setting.name == name) return setting.value;
  }
  return std::nullopt;
}

}  // namespace reckoner::trials
