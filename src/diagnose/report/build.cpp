// From the ledger to a document: which verdict goes where, and what each rests on.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "diagnose/report/report.h"
#include "diagnose/report/sections.h"

namespace reckoner::report {

using namespace trials;

std::vector<const Trial*> ended_trials(const RunRecord& record) {
  std::vector<const Trial*> ended;
  for (const Trial& trial : record.trials) {
    if (trial.ended) ended.push_back(&trial);
  }
  return ended;
}

std::vector<const Verdict*> verdicts_of(const RunRecord& record, VerdictKind kind) {
  std::vector<const Verdict*> found;
  for (const Verdict& verdict : record.verdicts) {
    if (verdict.kind == kind) found.push_back(&verdict);
  }
  return found;
}

Link trial_link(std::int64_t number) { return {fmt::format("trial {}", number), fmt::format("#trial-{}", number)}; }

std::vector<Link> trial_links(const std::vector<std::int64_t>& numbers) {
  std::vector<Link> links;
  for (const std::int64_t number : numbers) links.push_back(trial_link(number));
  return links;
}

Link evidence_link(const Sources& sources, const Evidence& evidence) {
  const std::string text = evidence.line > 0 ? fmt::format("{}:{}", evidence.file, evidence.line) : evidence.file;
  return {text, (sources.logs / evidence.file).generic_string()};
}

Link trial_file_link(const Sources& sources) { return {sources.record.run.file, sources.record.run.file}; }

Statement statement_of(const Sources& sources, const Verdict& verdict) {
  Statement statement{.text = verdict.text, .evidence = trial_links(verdict.trials)};
  // What was never varied rests on the trial file: no trial could show it.
  if (statement.evidence.empty()) statement.evidence.push_back(trial_file_link(sources));
  return statement;
}

namespace {

void add_verdicts(Section& section, const Sources& sources, std::initializer_list<VerdictKind> kinds) {
  for (const VerdictKind kind : kinds) {
    for (const Verdict* verdict : verdicts_of(sources.record, kind)) section.statements.push_back(statement_of(sources, *verdict));
  }
}

Section goal(const Sources& sources) {
  const Run& run = sources.record.run;
  Section section{.id = "goal", .title = "Goal"};
  section.statements.push_back({run.goal.empty() ? "The trial file names none." : run.goal, {trial_file_link(sources)}});
  std::string command;
  for (const std::string& word : run.command) command += (command.empty() ? "" : " ") + word;
  section.statements.push_back({"Target: " + command, {trial_file_link(sources)}});
  return section;
}

Section environment(const Sources& sources) {
  Section section{.id = "environment", .title = "Environment", .if_empty = "The ledger does not say what the machine was."};
  for (const Setting& setting : sources.record.run.environment) section.table.rows.push_back({{setting.name}, {setting.value}});
  if (!section.table.rows.empty()) section.table.header = {"what", "value"};
  for (const ToolOutput& doctor : sources.doctor) add_doctor(section, doctor);
  return section;
}

Section discoveries(const Sources& sources) {
  Section section{.id = "discoveries", .title = "Discoveries", .if_empty = "Nothing could be concluded yet."};
  add_verdicts(section, sources,
               {VerdictKind::none_passed, VerdictKind::all_passed, VerdictKind::minimal_failing_set, VerdictKind::flaky_setting,
                VerdictKind::flaky, VerdictKind::equal_configurations, VerdictKind::overridden, VerdictKind::inert});
  for (const ToolOutput& trace : sources.traces) add_trace(section, trace);
  return section;
}

// Failures by how they ended, the most frequent first.
std::vector<std::vector<const Trial*>> failure_groups(const RunRecord& record) {
  std::map<Outcome, std::vector<const Trial*>> by_outcome;
  for (const Trial* trial : ended_trials(record)) {
    if (trial->outcome != Outcome::pass) by_outcome[trial->outcome].push_back(trial);
  }
  std::vector<std::vector<const Trial*>> groups;
  for (const auto& [outcome, trials] : by_outcome) groups.push_back(trials);
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return groups;
}

Section critical_issues(const Sources& sources) {
  Section section{.id = "issues", .title = "Critical issues", .if_empty = "No trial failed and no log pattern matched."};
  const auto ended = static_cast<std::int64_t>(ended_trials(sources.record).size());
  for (const std::vector<const Trial*>& group : failure_groups(sources.record)) {
    const Trial& first = *group.front();
    const std::string where = first.where.empty() ? "" : fmt::format(" (first at: {})", first.where);
    const std::string line = first.evidence.text.empty() ? "" : fmt::format(": \"{}\"", first.evidence.text);
    Statement statement{.text = fmt::format("{}: {} of {} trials{}{}", description(first.outcome), group.size(), ended, where, line),
                        .evidence = {}};
    if (!first.evidence.file.empty()) statement.evidence.push_back(evidence_link(sources, first.evidence));
    for (const Trial* trial : group) statement.evidence.push_back(trial_link(trial->number));
    section.statements.push_back(std::move(statement));
  }
  add_verdicts(section, sources, {VerdictKind::pattern, VerdictKind::leftover});
  return section;
}

// Where the settings of a trial depart from the baseline: "moe=b kv=fp8".
std::string changes_text(const RunRecord& record, const Settings& settings) {
  Settings changed;
  for (const Setting& setting : settings) {
    const auto factor = std::find_if(record.factors.begin(), record.factors.end(), [&](const Factor& f) { return f.name == setting.name; });
    if (factor == record.factors.end() || factor->baseline != setting.value) changed.push_back(setting);
  }
  return changed.empty() ? "baseline" : text(changed);
}

std::string memory_text(std::int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

std::string ended_as(const Trial& trial) {
  if (!trial.ended) return "not ended";
  std::string words(description(trial.outcome));
  if (trial.same_as != 0) words += fmt::format(" (as trial {}: the same effective configuration)", trial.same_as);
  return words;
}

Section configurations(const Sources& sources) {
  const RunRecord& record = sources.record;
  Section section{.id = "configurations",
                  .title = "Configurations tried",
                  .intro = "Settings are those that depart from the baseline: " + text([&] {
                             Settings baseline;
                             for (const Factor& factor : record.factors) baseline.push_back({factor.name, factor.baseline});
                             return baseline;
                           }()) +
                           ".",
                  .if_empty = "None."};
  section.table = {.header = {"trial", "settings", "outcome", "where", "evidence", "start", "memory"}, .rows = {}, .anchor = "trial"};
  for (const Trial& trial : record.trials) {
    const Cell evidence = trial.evidence.file.empty()
                              ? Cell{trial.log_file, (sources.logs / trial.log_file).generic_string()}
                              : Cell{evidence_link(sources, trial.evidence).text, evidence_link(sources, trial.evidence).target};
    section.table.rows.push_back({{std::to_string(trial.number)},
                                  {changes_text(record, trial.settings)},
                                  {ended_as(trial)},
                                  {trial.where},
                                  evidence,
                                  {trial.ended ? fmt::format("{:.1f} s", trial.start_s) : ""},
                                  {trial.ended ? memory_text(trial.peak_memory_bytes) : ""}});
    section.bars.push_back({.number = trial.number,
                            .outcome = std::string(trial.ended ? description(trial.outcome) : "not ended"),
                            .good = trial.ended && trial.outcome == Outcome::pass,
                            .seconds = trial.total_s,
                            .label = changes_text(record, trial.settings)});
  }
  return section;
}

Section eliminated(const Sources& sources) {
  Section section{.id = "eliminated",
                  .title = "Eliminated, and why",
                  .intro = "A setting that was part of a configuration that passed is no cause by itself.",
                  .if_empty = "Nothing is eliminated yet: no configuration passed."};
  add_verdicts(section, sources, {VerdictKind::eliminated});
  if (section.statements.empty()) section.intro.clear();
  return section;
}

Section never_varied(const Sources& sources) {
  Section section{.id = "never-varied",
                  .title = "Never varied",
                  .intro = "These were the same in every trial, so that no trial says anything about them.",
                  .if_empty = "Every setting that the trial file knows was varied."};
  add_verdicts(section, sources, {VerdictKind::never_varied});
  if (section.statements.empty()) section.intro.clear();
  return section;
}

Section known_failures(const Sources& sources) {
  Section section{.id = "findings", .title = "Matching findings", .if_empty = "No known failure fits the logs."};
  for (const KnownFailure& known : sources.known) {
    Statement statement{
        .text = fmt::format("{} ({}). Cause ({}): {} Remedy: {}", known.title, known.id, known.confidence, known.cause, known.remedy),
        .evidence = {}};
    for (const Evidence& line : known.lines) statement.evidence.push_back(evidence_link(sources, line));
    for (const std::string& source : known.sources) statement.evidence.push_back({source, source});
    section.statements.push_back(std::move(statement));
  }
  return section;
}

Section files(const Sources& sources) {
  Section section{.id = "files", .title = "Files"};
  const auto add = [&](const std::string& what, const std::string& path) { section.table.rows.push_back({{what}, {path, path}}); };
  section.table.header = {"what", "where"};
  add("trial file", sources.record.run.file);
  add("ledger (SQLite)", sources.ledger.generic_string());
  add("logs of the trials", sources.logs.generic_string());
  for (const ToolOutput& doctor : sources.doctor) add("doctor", doctor.path);
  for (const ToolOutput& trace : sources.traces) add("trace", trace.path);
  return section;
}

}  // namespace

Document build(const Sources& sources) {
  const Run& run = sources.record.run;
  Document document{
      .title = run.name.empty() ? "Trials" : run.name,
      .subtitle = fmt::format("{} of trials{}; last change {}", run.state == RunState::ended ? "Report" : "Report, while they go on,",
                              run.started.empty() ? "" : " begun " + run.started, run.updated.empty() ? "unknown" : run.updated),
      .summary = summary_of(sources),
      .sections = {}};
  document.sections = {goal(sources),           environment(sources), discoveries(sources),  critical_issues(sources),
                       configurations(sources), eliminated(sources),  never_varied(sources), known_failures(sources),
                       progress(sources),       next_steps(sources),  files(sources)};
  for (const Section& section : document.sections) {
    for (const Statement& statement : section.statements) CHECK(!statement.evidence.empty(), statement.text);
  }
  return document;
}

}  // namespace reckoner::report
