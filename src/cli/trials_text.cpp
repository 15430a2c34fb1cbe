#include "cli/trials_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/text_format.h"

namespace reckoner {
namespace {

using trials::description;
using trials::Evidence;
using trials::Outcome;
using trials::RunRecord;
using trials::Settings;
using trials::Trial;
using trials::Verdict;

// Text on one line, cut to `width` characters of it.
std::string cut(std::string text, std::size_t width) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::size_t characters = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (begins && ++characters > width) return text.substr(0, i) + "...";
  }
  return text;
}

// Only what is not the baseline's: the rest is the same in most trials.
std::string changes(const RunRecord& record, const Trial& trial) {
  Settings changed;
  for (const trials::Factor& factor : record.factors) {
    const std::optional<std::string> value = trials::find(trial.settings, factor.name);
    if (value && *value != factor.baseline) changed.push_back({factor.name, *value});
  }
  return changed.empty() ? "baseline" : trials::text(changed);
}

std::string place(const Evidence& evidence) {
  return evidence.line > 0 ? fmt::format("{}:{}: ", evidence.file, evidence.line) : std::string();
}

std::string outcome_text(const Trial& trial) {
  if (!trial.ended) return "running";
  return std::string(description(trial.outcome));
}

std::string row(std::string_view label, std::string_view value) { return fmt::format("  {:<14}{}\n", label, value); }

std::string wrapped(const std::string& text, std::size_t indent) {
  constexpr std::size_t kWidth = 110;
  std::string result;
  std::size_t column = indent;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    const std::size_t length = end - start;
    if (column + length + 1 > kWidth && column > indent) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += text.substr(start, length);
    column += length;
    start = end + 1;
  }
  return result;
}

}  // namespace

std::string trial_line(const RunRecord& record, const Trial& trial) {
  std::string why;
  if (trial.ended && trial.same_as > 0) why = fmt::format("the same in effect as trial {}", trial.same_as);
  if (trial.ended && trial.same_as == 0 && trial.outcome != Outcome::pass) {
    why = fmt::format("{}{}{}", trial.where.empty() ? "" : trial.where + ": ", place(trial.evidence), trial.evidence.text);
  }
  return fmt::format("#{:<3} {:<19}{:<44} {:>7} {}\n", trial.number, outcome_text(trial), cut(changes(record, trial), 40),
                     trial.ended ? seconds_text(trial.total_s) : "", cut(why, 90));
}

std::string trials_table(const RunRecord& record, std::size_t most) {
  std::string text;
  const std::size_t first = record.trials.size() > most ? record.trials.size() - most : 0;
  if (first > 0) text += fmt::format("... {} before\n", first);
  for (std::size_t i = first; i < record.trials.size(); ++i) text += trial_line(record, record.trials[i]);
  return text;
}

std::string trials_summary(const RunRecord& record) {
  std::int64_t passes = 0;
  std::int64_t ended = 0;
  double seconds = 0;
  for (const Trial& trial : record.trials) {
    passes += trial.ended && trial.outcome == Outcome::pass ? 1 : 0;
    ended += trial.ended ? 1 : 0;
    seconds += trial.total_s;
  }
  std::string text = fmt::format("{}: {} {} in {}, {} passed{}\n", record.run.name, ended, ended == 1 ? "start" : "starts",
                                 seconds_text(seconds), passes, record.run.state == trials::RunState::running ? "; not finished" : "");
  if (!record.run.goal.empty()) text += fmt::format("goal: {}\n", record.run.goal);
  if (record.verdicts.empty()) return text;
  text += "\nWhat was found:\n";
  for (const Verdict& verdict : record.verdicts) {
    std::string sentence = verdict.text;
    // Of 1 there is nothing to say, and of failures that were not isolated not much.
    if (verdict.confidence < 1 && verdict.kind != trials::VerdictKind::flaky_setting)
      sentence += fmt::format(" (confidence {:.2f})", verdict.confidence);
    text += "  - " + wrapped(sentence, 4) + "\n";
  }
  return text;
}

std::string trial_page(const RunRecord& record, const Trial& trial) {
  std::string page = fmt::format("trial {} of {}: {}\n", trial.number, record.run.name, outcome_text(trial));
  page += row("purpose", trial.purpose);
  page += row("asked for", trials::text(trial.settings));
  page += row("command", fmt::format("{}", fmt::join(trial.command, " ")));
  page += row("started", trial.started);
  page += row("log", fmt::format("{}/{}", record.run.folder, trial.log_file));
  if (!trial.ended) return page;
  if (trial.same_as > 0) page += row("same as", fmt::format("trial {}: it was not probed", trial.same_as));
  page += row("took effect", trial.effective.empty() ? "not read back" : trials::text(trial.effective));
  if (!trial.where.empty()) page += row("where", trial.where);
  if (!trial.evidence.text.empty()) page += row("evidence", place(trial.evidence) + trial.evidence.text);
  page += row("ended", trial.ending);
  page += row("time", fmt::format("{} to be ready or to fail, {} in all", seconds_text(trial.start_s), seconds_text(trial.total_s)));
  page += row("memory", bytes_text(static_cast<double>(trial.peak_memory_bytes)) + " at most");
  if (trial.peak_gpu_bytes >= 0) page += row("GPU memory", bytes_text(static_cast<double>(trial.peak_gpu_bytes)) + " at most");
  for (const trials::ProbeResult& probe : trial.probes) {
    page += row("probe", fmt::format("{:<18}{:<14}{:>8}  {}", probe.name, description(probe.outcome), seconds_text(probe.seconds),
                                     probe.detail.empty() ? quoted_text(cut(probe.answer, 60)) : probe.detail));
  }
  for (const trials::PatternMatch& match : trial.patterns) {
    page += row(match.kind == trials::PatternKind::warning ? "warning" : "message",
                fmt::format("{} ({} x): {}{}", match.pattern, match.count, place(match.evidence), match.evidence.text));
  }
  for (const std::string& leftover : trial.leftovers) page += row("left behind", leftover);
  return page;
}

namespace {

// One line for each name whose value is not the same.
std::string settings_difference(std::string_view title, const Settings& a, const Settings& b) {
  std::string lines;
  const auto add = [&](const std::string& name) {
    const std::string of_a = trials::find(a, name).value_or("(none)");
    const std::string of_b = trials::find(b, name).value_or("(none)");
    if (of_a != of_b) lines += fmt::format("  {:<24}{:<30}{}\n", name, of_a, of_b);
  };
  for (const trials::Setting& setting : a) add(setting.name);
  for (const trials::Setting& setting : b) {
    if (!trials::find(a, setting.name)) add(setting.name);
  }
  return lines.empty() ? fmt::format("{}: the same\n", title) : fmt::format("{}:\n{}", title, lines);
}

}  // namespace

std::string trial_difference(const Trial& a, const Trial& b) {
  std::string page = fmt::format("  {:<24}{:<30}{}\n", "", fmt::format("trial {}", a.number), fmt::format("trial {}", b.number));
  page += fmt::format("  {:<24}{:<30}{}\n", "outcome", outcome_text(a), outcome_text(b));
  page += settings_difference("asked for", a.settings, b.settings);
  page += settings_difference("took effect", a.effective, b.effective);
  const auto answers = [](const Trial& trial) {
    Settings probes;
    for (const trials::ProbeResult& probe : trial.probes) {
      probes.push_back({probe.name, fmt::format("{} {}", description(probe.outcome), probe.fingerprint)});
    }
    return probes;
  };
  page += settings_difference("probes (outcome, fingerprint of the answers)", answers(a), answers(b));
  const auto matches = [](const Trial& trial) {
    Settings patterns;
    for (const trials::PatternMatch& match : trial.patterns) patterns.push_back({match.pattern, fmt::format("{} x", match.count)});
    return patterns;
  };
  page += settings_difference("log patterns", matches(a), matches(b));
  return page;
}

}  // namespace reckoner
