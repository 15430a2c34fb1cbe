// What lines of a server's output mean: rules as data, and a pass over a log that applies them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/trials/ledger.h"
#include "diagnose/trials/trial_file.h"

namespace reckoner::trials {

// A kind of line that names why a server failed. Of several that match in one log the first of this list counts, and of its lines the
// earliest: what comes later is mostly fallout.
struct LogRule {
  std::string_view name;
  Outcome outcome;
  std::string_view expression;  // ECMAScript, case does not matter
};
extern const std::vector<LogRule> kLogRules;

// A line that tells how far the start has come; the last one before a failure says where that was.
struct PhaseRule {
  std::string_view phase;
  std::string_view expression;
};
extern const std::vector<PhaseRule> kPhaseRules;

struct Classified {
  std::string rule;
  Outcome outcome = Outcome::no_start;
  std::string phase;  // that the log was in; "start" when no line said
  Evidence evidence;
};

struct LogFindings {
  std::optional<Classified> failure;
  std::vector<PatternMatch> patterns;  // of the trial file: warnings and classifications
  Settings effective;                  // keys that are read from lines
  Evidence last_line;                  // that is not blank
  std::string phase;
};

// `shown_as`: the log's name in evidence. Of a line the first 2,000 bytes are looked at; bytes that are no UTF-8 become U+FFFD.
Result<LogFindings> scan_log(const TrialFile& file, const std::filesystem::path& log, const std::string& shown_as);

// Whether a line of the log from byte `from` on matches; `from` is moved behind the last whole line.
bool has_line(const std::filesystem::path& log, const std::regex& expression, std::int64_t& from);

// Valid UTF-8, `limit` bytes at most.
std::string shown_text(std::string_view bytes, std::size_t limit);

}  // namespace reckoner::trials
