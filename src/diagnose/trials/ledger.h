// Ledger: what a series of trials was, did and found, in one SQLite file.
//
// How to read it:
//   const Ledger ledger = TRY(Ledger::open(path, Ledger::Access::read));
//   const RunRecord record = TRY(ledger.read_latest_run());         // or read_run(id), with the ids of runs()
//   for (const Trial& trial : record.trials) ...                    // in the order of their starts: trials[n].number == n + 1
//   for (const Verdict& verdict : record.verdicts) ...              // what was concluded, the most important first
// Everything is a plain struct. Reading is possible while the run goes on (run.state == RunState::running): a trial that has not ended has
// ended == false, and verdicts are those of the trials so far. A verdict's `text` is a sentence to print as it is; `trials` are the numbers
// of the trials that it rests on, so that every statement can link to its evidence. Files are named relative to `run.folder`.
// The tables are named and laid out like the structs (schema: kSchema in ledger.cpp), for people with sqlite3 at hand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace reckoner::trials {

// How a trial ended; all but `pass` are failures.
enum class Outcome {
  pass,
  slow,                // every answer right, one later than the probe allows
  no_start,            // the process ended before it was ready, for a reason that no other outcome names
  wrong_architecture,  // a kernel that this GPU does not run
  out_of_memory,       // Trial::where says in which phase
  assertion,
  nan,
  garbage,  // an answer that is no language: repeated pieces, U+FFFD
  empty,    // a complete answer without text
  wrong,    // an answer in good form that is not the expected one, or two that should be equal and are not
  refused,  // a request was answered with an error
  hang,     // not ready in time, or a request without an answer
  crash,    // ended by a signal
};
inline constexpr Outcome kOutcomes[] = {Outcome::pass,          Outcome::slow,      Outcome::no_start, Outcome::wrong_architecture,
                                        Outcome::out_of_memory, Outcome::assertion, Outcome::nan,      Outcome::garbage,
                                        Outcome::empty,         Outcome::wrong,     Outcome::refused,  Outcome::hang,
                                        Outcome::crash};
std::string_view name(Outcome outcome);         // "out_of_memory": in the ledger and in exports
std::string_view description(Outcome outcome);  // "out of memory": in sentences
std::optional<Outcome> outcome_from(std::string_view name);

// A name and what it is set to: a factor and the label of its value, a key of the effective configuration, a line about the machine.
struct Setting {
  std::string name;
  std::string value;

  bool operator==(const Setting&) const = default;
};
using Settings = std::vector<Setting>;
// "moe=cutlass kv=fp8"
std::string text(const Settings& settings);
// The value of `name`; nothing when it is not there.
std::optional<std::string> find(const Settings& settings, std::string_view name);

// A line of a file; line 0: no single line.
struct Evidence {
  std::string text;
  std::string file;  // relative to the run's folder
  std::int64_t line = 0;

  bool operator==(const Evidence&) const = default;
};

// What was varied.
struct Factor {
  std::string name;
  std::string about;                // from the trial file; may be empty
  std::string effective_key;        // the key of Trial::effective that tells what became of it; the factor's name by default
  std::vector<std::string> values;  // labels, in the order of the trial file
  std::string baseline;             // one of them

  bool operator==(const Factor&) const = default;
};

struct ProbeResult {
  std::string name;
  std::string kind;  // "health", "short", "long_prompt", ...: kProbeKinds in trial_file.h
  Outcome outcome = Outcome::pass;
  std::string detail;       // what was wrong, or what was measured: "2 U+FFFD in 80 characters"
  std::string answer;       // the beginning of the first answer, valid UTF-8
  std::string fingerprint;  // of all its answers: equal answers have equal ones; empty when there was no answer
  double seconds = 0;

  bool operator==(const ProbeResult&) const = default;
};

enum class PatternKind { warning, classification };

// A log pattern that a trial's output matched. The first line that does is the evidence.
struct PatternMatch {
  std::string pattern;  // its name
  PatternKind kind = PatternKind::warning;
  std::int64_t count = 1;  // of matching lines
  Evidence evidence;

  bool operator==(const PatternMatch&) const = default;
};

// One start of the server.
struct Trial {
  std::int64_t number = 0;           // 1, 2, ...: the start's number in its run
  std::int64_t repeat = 0;           // how often the same settings had been started before
  std::string purpose;               // why: "baseline", "moe=cutlass alone", "repeat of trial 3: is its failure stable?"
  Settings settings;                 // what was asked: every factor with the label of its value, in the order of the trial file
  std::vector<std::string> command;  // as started
  std::string started;               // UTC, "2026-03-01T12:00:00Z"
  bool ended = false;                // false: running, or the run was killed in the middle of it
  Outcome outcome = Outcome::pass;   // from here on only when ended
  std::string where;                 // the phase or the probe of a failure: "start", "graph capture", "probe short"
  Evidence evidence;                 // the line that shows the outcome
  std::string ending;                // how the process ended: "on SIGTERM, status 0", "by itself with signal 11 (Segmentation fault)"
  std::int64_t same_as = 0;          // not 0: its effective configuration was that trial's; it was not probed and its outcome is that one's
  Settings effective;                // the configuration that took effect, read back; keys as the trial file names them
  std::string fingerprint;           // of all probes' answers; empty when there were none
  double start_s = 0;                // until it was ready, or ended, or was given up
  double total_s = 0;                // stop included
  std::int64_t peak_memory_bytes = 0;  // resident, all its processes together
  std::int64_t peak_gpu_bytes = -1;    // -1: no GPU here
  std::string log_file;                // relative to the run's folder
  std::vector<ProbeResult> probes;     // in order; after a failed one the rest is left out when the server is gone
  std::vector<PatternMatch> patterns;  // classifications and warnings
  std::vector<std::string> leftovers;  // what the stop did not put back as it was: processes, the port, memory

  bool operator==(const Trial&) const = default;
};

enum class VerdictKind {
  none_passed,           // no trial passed
  all_passed,            // every trial passed
  minimal_failing_set,   // settings: the smallest set found that fails; Verdict::from: the passing configuration that they are relative to
  unconfirmed_failure,   // settings of a failure that was not isolated: the budget ended first
  flaky,                 // settings: those of a configuration that both passed and failed; confidence: that it is not one outcome
  flaky_setting,         // settings: the most likely one behind the flaky failures; confidence: its probability
  equal_configurations,  // trials that asked for different settings and had one effective configuration
  inert,                 // settings: the name and the values asked for; the effective value never changed
  overridden,            // settings: asked for (name, value), the server took another one; Verdict::text says which
  eliminated,            // settings: a value that was part of a passing configuration, so that it alone is no cause
  never_varied,          // settings: a fixed one, or a factor of which only one value was started
  pattern,               // a log pattern that matched; settings is empty, name is the pattern
  leftover,              // a stop that did not put everything back
  budget_spent,          // max_starts ended the search: what is left open
};
std::string_view name(VerdictKind kind);
std::optional<VerdictKind> verdict_kind_from(std::string_view name);

struct Verdict {
  VerdictKind kind = VerdictKind::all_passed;
  std::string name;                  // of the pattern; else empty
  Settings settings;                 // see VerdictKind
  Settings from;                     // of minimal_failing_set: every setting of the passing configuration; else empty
  std::vector<std::int64_t> trials;  // numbers of the trials that show it
  double confidence = 1;             // in [0, 1]
  std::string text;                  // one sentence

  bool operator==(const Verdict&) const = default;
};

enum class RunState { running, ended };

struct Run {
  std::int64_t id = 0;
  std::string name;
  std::string goal;
  std::string file;                  // the trial file's path as given
  std::string file_text;             // the trial file as it was
  std::vector<std::string> command;  // the template, with {placeholders}
  std::string folder;                // where the logs are: relative to the ledger's folder
  Settings environment;              // the machine: "host", "system", "processor", "cores", "memory", "gpu 0", ...
  std::string started;               // UTC
  std::string updated;               // UTC: the last time that a trial ended
  std::uint64_t seed = 0;
  std::int64_t max_starts = 0;
  RunState state = RunState::running;
};

// A run with all that belongs to it.
struct RunRecord {
  Run run;
  std::vector<Factor> factors;
  Settings fixed;  // settings that the trial file knows and never varies
  std::vector<Trial> trials;
  std::vector<Verdict> verdicts;
};

class Database;

class Ledger {
 public:
  enum class Access { read, write };

  // Access::write makes the file if it is not there. Errors: no ledger, of a newer version, not readable, not writable.
  static Result<Ledger> open(const std::filesystem::path& path, Access access);
  Ledger(Ledger&&) noexcept;
  Ledger& operator=(Ledger&&) noexcept;
  ~Ledger();

  // Without what belongs to them; the oldest first.
  Result<std::vector<Run>> runs() const;
  // Error: there is none.
  Result<RunRecord> read_run(std::int64_t id) const;
  Result<RunRecord> read_latest_run() const;
  // Where the files of evidence are: the ledger's folder / run.folder.
  std::filesystem::path folder_of(const Run& run) const;

  // Each of these is one transaction: what it wrote is there after a kill -9, and a part of it never is.
  // run.id is given by the ledger, and returned.
  Result<std::int64_t> begin_run(const Run& run, const std::vector<Factor>& factors, const Settings& fixed);
  Status begin_trial(std::int64_t run, const Trial& trial);
  Status end_trial(std::int64_t run, const Trial& trial);
  // A trial that did not come to an end: as if it had not been begun.
  Status forget_trial(std::int64_t run, std::int64_t number);
  Status write_verdicts(std::int64_t run, const std::vector<Verdict>& verdicts);
  Status set_state(std::int64_t run, RunState state);
  // A resumed run may go on for longer.
  Status set_max_starts(std::int64_t run, std::int64_t max_starts);

 private:
  explicit Ledger(std::unique_ptr<Database> database, std::filesystem::path path);
  std::unique_ptr<Database> database_;
  std::filesystem::path path_;
};

}  // namespace reckoner::trials
