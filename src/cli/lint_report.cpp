#include "cli/lint_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>

#include "cli/command_line.h"
#include "cli/text_format.h"

namespace reckoner {
namespace {

namespace json = boost::json;
using lint::Finding;
using lint::FindingGroup;
using lint::LintReport;
using lint::Severity;

std::string_view severity_name(Severity severity) {
  return severity == Severity::error ? "error" : severity == Severity::warning ? "warning" : "note";
}

// "1 warning", "2 warnings"
std::string counted(std::int64_t count, std::string_view word) { return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s"); }

std::string one(const Finding& finding) { return finding.where.empty() ? finding.what : finding.where + ": " + finding.what; }

std::string group_text(const FindingGroup& group) {
  constexpr std::size_t kAllShown = 3;
  std::string text = wrapped(fmt::format("  {}: ", group.kind->id), group.kind->title);
  if (group.findings.size() <= kAllShown && static_cast<std::int64_t>(group.findings.size()) == group.count) {
    for (const Finding& finding : group.findings) text += wrapped("    - ", valid_utf8(one(finding)));
  } else {
    text += wrapped("    - ", valid_utf8(folded(group)));
  }
  text += wrapped("    why       ", group.kind->why);
  if (!group.kind->reckoner.empty()) text += wrapped("    Reckoner  ", group.kind->reckoner);
  if (!group.kind->others.empty()) text += wrapped("    others    ", group.kind->others);
  return text;
}

std::string verdict(const LintReport& report) {
  const std::int64_t errors = report.count(Severity::error);
  const std::int64_t warnings = report.count(Severity::warning);
  const std::string counts =
      fmt::format("{}, {}, {}", counted(errors, "error"), counted(warnings, "warning"), counted(report.count(Severity::note), "note"));
  if (errors > 0) return counts + ": Reckoner does not serve this checkpoint as it is";
  if (warnings > 0) return counts + ": Reckoner serves this checkpoint; look at the warnings first";
  return counts + ": nothing wrong was found";
}

json::object finding_json(const Finding& finding) {
  json::object object = {{"where", valid_utf8(finding.where)}, {"what", valid_utf8(finding.what)}};
  if (finding.layer) object["layer"] = *finding.layer;
  if (finding.expert) object["expert"] = *finding.expert;
  return object;
}

json::object group_json(const FindingGroup& group) {
  json::array places;
  for (const Finding& finding : group.findings) places.push_back(finding_json(finding));
  return {{"id", group.kind->id},
          {"severity", severity_name(group.kind->severity)},
          {"title", group.kind->title},
          {"why", group.kind->why},
          {"reckoner", group.kind->reckoner},
          {"others", group.kind->others},
          {"count", group.count},
          {"layers", json::array(group.layers.begin(), group.layers.end())},
          {"places", std::move(places)}};
}

}  // namespace

std::string folded(const FindingGroup& group) {
  const std::string first = one(group.findings.front());
  if (group.count == 1) return first;
  if (group.layers.size() > 1) return fmt::format("{} times in {} layers, first: {}", group.count, group.layers.size(), first);
  return fmt::format("{} times, first: {}", group.count, first);
}

std::string lint_text(const std::string& model, const LintReport& report) {
  std::string text =
      fmt::format("{}: {}, {}, {}; {} of values read\n", model, counted(report.files, "file"), counted(report.tensors, "tensor"),
                  bytes_text(static_cast<double>(report.file_bytes)), bytes_text(static_cast<double>(report.read_bytes)));
  std::optional<Severity> last;
  for (const FindingGroup* group : report.groups()) {
    if (last != group->kind->severity) text += fmt::format("\n{}s\n", severity_name(group->kind->severity));
    last = group->kind->severity;
    text += group_text(*group);
  }
  return text + "\n" + verdict(report) + "\n";
}

std::string lint_json(const std::string& model, const LintReport& report) {
  json::array findings;
  for (const FindingGroup* group : report.groups()) findings.push_back(group_json(*group));
  const json::object object = {{"model", model},
                               {"clean", report.clean()},
                               {"errors", report.count(Severity::error)},
                               {"warnings", report.count(Severity::warning)},
                               {"notes", report.count(Severity::note)},
                               {"files", report.files},
                               {"tensors", report.tensors},
                               {"file_bytes", report.file_bytes},
                               {"read_bytes", report.read_bytes},
                               {"findings", std::move(findings)}};
  return json::serialize(object) + "\n";
}

void print_lint(const std::string& model, const LintReport& report, Console& console) {
  for (const FindingGroup* group : report.groups()) {
    if (group->kind->severity == Severity::note) continue;
    console.note(fmt::format("{}: {}: {}; {}", severity_name(group->kind->severity), group->kind->id, group->kind->title,
                             valid_utf8(folded(*group))));
  }
  if (!report.clean()) console.note(fmt::format("`reckoner lint {}` says more", model));
}

Status refuse_lint_errors(const std::string& model, const LintReport& report, const std::vector<std::string>& accept) {
  for (const std::string& id : accept) {
    if (lint::find_kind(id) != nullptr) continue;
    std::vector<std::string> known;
    for (const lint::FindingKind& kind : lint::catalogue()) known.emplace_back(kind.id);
    const std::string close = nearest(id, known);
    return Error{fmt::format("--accept: there is no finding '{}'", id),
                 close.empty() ? "`reckoner lint` prints the ids of its findings" : fmt::format("did you mean {}?", close)};
  }
  std::vector<std::string> refused;
  std::string first;
  for (const FindingGroup* group : report.groups()) {
    const std::string id(group->kind->id);
    if (group->kind->severity != Severity::error || std::find(accept.begin(), accept.end(), id) != accept.end()) continue;
    refused.push_back(id);
    if (first.empty()) first = valid_utf8(folded(*group));
  }
  if (refused.empty()) return {};
  return Error{fmt::format("{}: {}: {}", model, refused.front(), first),
               fmt::format("see `reckoner lint {}`; to serve it all the same: --accept {}", model, fmt::join(refused, " --accept "))};
}

}  // namespace reckoner
