// How far it got, and what to do next.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "diagnose/report/sections.h"

namespace reckoner::report {

using namespace trials;

namespace {

// The first that passed: what can be served now.
const Trial* first_passing(const RunRecord& record) {
  for (const Trial& trial : record.trials) {
    if (trial.ended && trial.outcome == Outcome::pass) return &trial;
  }
  return nullptr;
}

std::string command_text(const Trial& trial) {
  std::string command;
  for (const std::string& word : trial.command) {
    const bool plain = !word.empty() && word.find_first_of(" \t\"'$\\{}|&;<>()*?") == std::string::npos;
    command += (command.empty() ? "" : " ") + (plain ? word : fmt::format("'{}'", word));
  }
  return command;
}

std::string count_text(std::int64_t count, std::string_view one) { return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s"); }

std::int64_t passed_count(const RunRecord& record) {
  const std::vector<const Trial*> ended = ended_trials(record);
  return std::count_if(ended.begin(), ended.end(), [](const Trial* trial) { return trial->outcome == Outcome::pass; });
}

// "fp4_gemm", "--fp4-gemm" and "FP4 GEMM" are the same words.
std::string words_of(const std::string& text) {
  std::string words;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.empty() && words.back() != ' ') {
      words += ' ';
    }
  }
  return words;
}

bool names(const KnownFailure& known, const Setting& setting) {
  const std::string name = words_of(setting.name);
  return !name.empty() && (" " + words_of(known.cause + " " + known.remedy) + " ").find(" " + name + " ") != std::string::npos;
}

// Whether a known failure that fits the logs names a setting of this verdict.
bool is_suspected(const Sources& sources, const Verdict& verdict) {
  return std::any_of(sources.known.begin(), sources.known.end(), [&](const KnownFailure& known) {
    return std::any_of(verdict.settings.begin(), verdict.settings.end(), [&](const Setting& setting) { return names(known, setting); });
  });
}

// Settings that were never varied, the suspected ones first.
std::vector<const Verdict*> never_varied_by_suspicion(const Sources& sources) {
  std::vector<const Verdict*> all = verdicts_of(sources.record, VerdictKind::never_varied);
  std::stable_sort(all.begin(), all.end(),
                   [&](const Verdict* a, const Verdict* b) { return is_suspected(sources, *a) > is_suspected(sources, *b); });
  return all;
}

Statement vary(const Sources& sources, const Verdict& verdict) {
  const std::string why = is_suspected(sources, verdict) ? ", and a known failure that fits the logs names it" : "";
  return {fmt::format("Vary {}: it was the same in every trial, so that it is still a possible cause{}.", text(verdict.settings), why),
          statement_of(sources, verdict).evidence};
}

Statement apply(const Sources& sources, const KnownFailure& known) {
  Statement step{.text = fmt::format("Try what {} recommends: {} Its cause is {}.", known.id, known.remedy, known.confidence),
                 .evidence = {}};
  for (const Evidence& line : known.lines) step.evidence.push_back(evidence_link(sources, line));
  for (const std::string& source : known.sources) step.evidence.push_back({source, source});
  return step;
}

}  // namespace

std::vector<std::string> summary_of(const Sources& sources) {
  const RunRecord& record = sources.record;
  const auto ended = static_cast<std::int64_t>(ended_trials(record).size());
  std::vector<std::string> summary = {fmt::format("{} ended, {} of them passed.", count_text(ended, "trial"), passed_count(record))};
  if (const Trial* passing = first_passing(record)) summary.push_back(fmt::format("Works: trial {}.", passing->number));
  for (const VerdictKind kind : {VerdictKind::none_passed, VerdictKind::minimal_failing_set, VerdictKind::flaky_setting}) {
    for (const Verdict* verdict : verdicts_of(record, kind)) summary.push_back(verdict->text);
  }
  if (passed_count(record) == 0) {
    for (const Verdict* verdict : never_varied_by_suspicion(sources)) summary.push_back(verdict->text);
  }
  return summary;
}

Section progress(const Sources& sources) {
  const RunRecord& record = sources.record;
  Section section{.id = "progress", .title = "Accomplished, in progress, not done"};
  const auto add = [&](std::string_view state, const std::string& text, std::vector<Link> evidence) {
    section.statements.push_back({fmt::format("{}: {}", state, text), std::move(evidence)});
  };
  std::vector<std::int64_t> passed, others;
  for (const Trial* trial : ended_trials(record)) (trial->outcome == Outcome::pass ? passed : others).push_back(trial->number);
  if (!passed.empty())
    add("Accomplished", fmt::format("{} passed", count_text(static_cast<std::int64_t>(passed.size()), "trial")), trial_links(passed));
  if (!others.empty())
    add("Accomplished", fmt::format("{} failed, with the reason on record", count_text(static_cast<std::int64_t>(others.size()), "trial")),
        trial_links(others));
  for (const Verdict* verdict : verdicts_of(record, VerdictKind::minimal_failing_set))
    add("Accomplished", verdict->text, trial_links(verdict->trials));
  for (const Trial& trial : record.trials) {
    if (!trial.ended) add("In progress", fmt::format("trial {}, {}", trial.number, trial.purpose), {trial_link(trial.number)});
  }
  for (const VerdictKind kind : {VerdictKind::unconfirmed_failure, VerdictKind::budget_spent, VerdictKind::never_varied}) {
    for (const Verdict* verdict : verdicts_of(record, kind)) {
      Statement statement = statement_of(sources, *verdict);
      add("Not done", statement.text, std::move(statement.evidence));
    }
  }
  section.if_empty = "No trial has ended yet.";
  return section;
}

Section next_steps(const Sources& sources) {
  const RunRecord& record = sources.record;
  Section section{.id = "next", .title = "Next steps", .list = ListKind::numbers, .if_empty = "Nothing is left to do."};
  std::vector<Statement>& steps = section.statements;
  if (const Trial* passing = first_passing(record)) {
    steps.push_back(
        {fmt::format("Serve with what passed in trial {}: {}", passing->number, command_text(*passing)), {trial_link(passing->number)}});
  }
  for (const Verdict* verdict : verdicts_of(record, VerdictKind::minimal_failing_set)) {
    steps.push_back(
        {fmt::format("Keep {} apart from what passes, and report it to those who make the server: it is the smallest set that fails.",
                     text(verdict->settings)),
         trial_links(verdict->trials)});
  }
  // What fits both the logs and what is known elsewhere comes first.
  const std::vector<const Verdict*> unvaried = never_varied_by_suspicion(sources);
  for (const Verdict* verdict : unvaried) {
    if (is_suspected(sources, *verdict)) steps.push_back(vary(sources, *verdict));
  }
  for (const KnownFailure& known : sources.known) steps.push_back(apply(sources, known));
  for (const Verdict* verdict : unvaried) {
    if (!is_suspected(sources, *verdict)) steps.push_back(vary(sources, *verdict));
  }
  if (record.run.state == RunState::running || !verdicts_of(record, VerdictKind::budget_spent).empty() ||
      !verdicts_of(record, VerdictKind::unconfirmed_failure).empty()) {
    steps.push_back({fmt::format("Go on where the trials stopped: reckoner trials run {} --resume --max-starts {}", record.run.file,
                                 record.run.max_starts + 20),
                     {trial_file_link(sources)}});
  }
  for (const Verdict* verdict : verdicts_of(record, VerdictKind::leftover)) {
    Statement statement = statement_of(sources, *verdict);
    statement.text = "Find out why a stop left something behind, which can spoil the next start: " + statement.text;
    steps.push_back(std::move(statement));
  }
  for (const Verdict* verdict : verdicts_of(record, VerdictKind::inert)) {
    steps.push_back({fmt::format("Leave {} out of the next series: it changes nothing here.",
                                 verdict->settings.empty() ? "it" : verdict->settings.front().name),
                     trial_links(verdict->trials)});
  }
  return section;
}

}  // namespace reckoner::report
