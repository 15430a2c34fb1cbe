// Which known failures fit the logs of the trials.
#include <algorithm>
#include <fstream>
#include <map>

#include "diagnose/report/report.h"

namespace reckoner::report {

std::vector<KnownFailure> find_known_failures(const trials::RunRecord& record, const std::filesystem::path& logs,
                                              std::span<const findings::Finding> findings) {
  std::vector<KnownFailure> known;
  std::map<std::string_view, std::size_t> index;  // of a finding's id
  for (const trials::Trial& trial : record.trials) {
    std::ifstream log(logs / trial.log_file);
    if (trial.log_file.empty() || !log) continue;
    for (const findings::TextMatch& match : findings::match_text(findings, log)) {
      const findings::Finding& finding = *match.finding;
      const auto [at, is_new] = index.try_emplace(finding.id, known.size());
      if (is_new) {
        known.push_back({.id = finding.id,
                         .title = finding.title,
                         .cause = finding.cause,
                         .remedy = finding.remedy,
                         .confidence = std::string(name(finding.confidence)),
                         .sources = finding.sources,
                         .lines = {}});
      }
      known[at->second].lines.push_back({.text = match.line, .file = trial.log_file, .line = match.line_number});
    }
  }
  // What more trials showed comes first.
  std::stable_sort(known.begin(), known.end(),
                   [](const KnownFailure& a, const KnownFailure& b) { return a.lines.size() > b.lines.size(); });
  return known;
}

}  // namespace reckoner::report
