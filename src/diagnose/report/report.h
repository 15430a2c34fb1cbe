// report: what a series of trials amounts to, for somebody who was not there. Built from the ledger (and from what doctor and trace wrote);
// every statement names the evidence it rests on, and nothing is said that is not there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "diagnose/findings/findings.h"
#include "diagnose/trials/ledger.h"

namespace reckoner::report {

// Where a statement can be checked: "trial 3" -> "#trial-3", "trial-3.log:17" -> "story.logs/trial-3.log".
struct Link {
  std::string text;
  std::string target;  // a fragment of this document or a file's path; empty: only named
};

struct Statement {
  std::string text;
  std::vector<Link> evidence;  // never empty
};

struct Cell {
  std::string text;
  std::string target = {};  // a link, if not empty
};

struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<Cell>> rows;
  std::string anchor = {};  // rows are "<anchor>-1", "<anchor>-2", ...: what links refer to; empty: none do
};

// A bar for each trial: how long it took, coloured by how it ended.
struct TrialBar {
  std::int64_t number = 0;
  std::string outcome;
  bool good = false;
  double seconds = 0;
  std::string label;
};

enum class ListKind : std::uint8_t { bullets, numbers };

struct Section {
  std::string id;
  std::string title;
  std::string intro = {};
  std::vector<Statement> statements = {};
  ListKind list = ListKind::bullets;
  Table table = {};
  std::vector<TrialBar> bars = {};
  std::string if_empty = {};  // said when there is nothing else
};

struct Document {
  std::string title;
  std::string subtitle;
  std::vector<std::string> summary;  // the first thing to read: what works, what does not, what is next
  std::vector<Section> sections;
};

// A JSON file of `reckoner doctor --json` or `reckoner trace --json`, by the path that the report names it with.
struct ToolOutput {
  std::string path;
  JsonDocument document;
};

// A known failure (findings/*.toml) that fits the logs of the trials.
struct KnownFailure {
  std::string id;
  std::string title;
  std::string cause;
  std::string remedy;
  std::string confidence;               // of the cause: "confirmed", "plausible", "unknown"
  std::vector<std::string> sources;     // URLs
  std::vector<trials::Evidence> lines;  // that match it, of different trials
};

// The findings whose symptoms stand in the trials' logs below `logs`, those that most trials show first. A log that is gone is left out.
std::vector<KnownFailure> find_known_failures(const trials::RunRecord& record, const std::filesystem::path& logs,
                                              std::span<const findings::Finding> findings);

struct Sources {
  const trials::RunRecord& record;
  std::filesystem::path ledger;  // its path, for the list of files
  std::filesystem::path logs;    // the folder that evidence is relative to, as links are to name it
  std::vector<KnownFailure> known = {};
  std::vector<ToolOutput> doctor = {};
  std::vector<ToolOutput> traces = {};
};

Document build(const Sources& sources);

std::string to_markdown(const Document& document);
// One page that needs nothing else.
std::string to_html(const Document& document);

}  // namespace reckoner::report
