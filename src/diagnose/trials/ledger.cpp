#include "diagnose/trials/ledger.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <ctime>
#include <unordered_map>

#include "base/check.h"
#include "diagnose/trials/database.h"

namespace reckoner::trials {
namespace {

namespace json = boost::json;

constexpr std::int64_t kVersion = 1;

// Every row that belongs to a run names it; every row of a trial names the trial too. `position` keeps lists in order.
constexpr const char* kSchema = R"sql(
CREATE TABLE run (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, goal TEXT NOT NULL, file TEXT NOT NULL,
  file_text TEXT NOT NULL, command TEXT NOT NULL, folder TEXT NOT NULL, started TEXT NOT NULL, updated TEXT NOT NULL,
  seed INTEGER NOT NULL, max_starts INTEGER NOT NULL, state TEXT NOT NULL);
CREATE TABLE environment (run INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL);
CREATE TABLE fixed (run INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL);
CREATE TABLE factor (run INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, about TEXT NOT NULL,
  effective_key TEXT NOT NULL, baseline TEXT NOT NULL);
CREATE TABLE factor_value (run INTEGER NOT NULL, factor TEXT NOT NULL, position INTEGER NOT NULL, value TEXT NOT NULL);
CREATE TABLE trial (run INTEGER NOT NULL, number INTEGER NOT NULL, repeat INTEGER NOT NULL, purpose TEXT NOT NULL,
  command TEXT NOT NULL, started TEXT NOT NULL, ended INTEGER NOT NULL, outcome TEXT NOT NULL, at TEXT NOT NULL,
  evidence TEXT NOT NULL, evidence_file TEXT NOT NULL, evidence_line INTEGER NOT NULL, ending TEXT NOT NULL,
  same_as INTEGER NOT NULL, fingerprint TEXT NOT NULL, start_s REAL NOT NULL, total_s REAL NOT NULL,
  peak_memory_bytes INTEGER NOT NULL, peak_gpu_bytes INTEGER NOT NULL, log_file TEXT NOT NULL, PRIMARY KEY (run, number));
CREATE TABLE trial_setting (run INTEGER NOT NULL, trial INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL,
  value TEXT NOT NULL);
CREATE TABLE trial_effective (run INTEGER NOT NULL, trial INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL,
  value TEXT NOT NULL);
CREATE TABLE probe (run INTEGER NOT NULL, trial INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
  outcome TEXT NOT NULL, detail TEXT NOT NULL, answer TEXT NOT NULL, fingerprint TEXT NOT NULL, seconds REAL NOT NULL);
CREATE TABLE pattern_match (run INTEGER NOT NULL, trial INTEGER NOT NULL, position INTEGER NOT NULL, pattern TEXT NOT NULL,
  kind TEXT NOT NULL, count INTEGER NOT NULL, evidence TEXT NOT NULL, evidence_file TEXT NOT NULL, evidence_line INTEGER NOT NULL);
CREATE TABLE leftover (run INTEGER NOT NULL, trial INTEGER NOT NULL, position INTEGER NOT NULL, text TEXT NOT NULL);
CREATE TABLE verdict (run INTEGER NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
  confidence REAL NOT NULL, text TEXT NOT NULL);
CREATE TABLE verdict_setting (run INTEGER NOT NULL, verdict INTEGER NOT NULL, position INTEGER NOT NULL, role TEXT NOT NULL,
  name TEXT NOT NULL, value TEXT NOT NULL);
CREATE TABLE verdict_trial (run INTEGER NOT NULL, verdict INTEGER NOT NULL, position INTEGER NOT NULL, trial INTEGER NOT NULL);
PRAGMA user_version = 1;
)sql";

// What a trial gains when it ends.
constexpr const char* kTablesOfTrials[] = {"trial_setting", "trial_effective", "probe", "pattern_match", "leftover"};

std::string list_text(const std::vector<std::string>& list) {
  json::array array;
  for (const std::string& element : list) array.emplace_back(element);
  return json::serialize(array);
}

std::vector<std::string> list_from(const std::string& text) {
  std::vector<std::string> list;
  json::error_code error;
  const json::value value = json::parse(text, error);
  if (error || !value.is_array()) return list;
  for (const json::value& element : value.get_array()) {
    if (element.is_string()) list.emplace_back(element.get_string());
  }
  return list;
}

std::int64_t size_of(std::size_t size) { return static_cast<std::int64_t>(size); }

Error no_run(const std::string& what) { return {what, "`reckoner trials run FILE --ledger LEDGER` makes one"}; }

Status insert_trial_row(Database& database, std::int64_t run, const Trial& trial) {
  const std::string command = list_text(trial.command);
  TRY(database.run("INSERT INTO trial VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20)",
                   {run,
                    trial.number,
                    trial.repeat,
                    trial.purpose,
                    command,
                    trial.started,
                    std::int64_t{trial.ended},
                    name(trial.outcome),
                    trial.where,
                    trial.evidence.text,
                    trial.evidence.file,
                    trial.evidence.line,
                    trial.ending,
                    trial.same_as,
                    trial.fingerprint,
                    trial.start_s,
                    trial.total_s,
                    trial.peak_memory_bytes,
                    trial.peak_gpu_bytes,
                    trial.log_file}));
  for (std::size_t i = 0; i < trial.settings.size(); ++i) {
    TRY(database.run("INSERT INTO trial_setting VALUES (?1,?2,?3,?4,?5)",
                     {run, trial.number, size_of(i), trial.settings[i].name, trial.settings[i].value}));
  }
  return {};
}

Status insert_trial_results(Database& database, std::int64_t run, const Trial& trial) {
  for (std::size_t i = 0; i < trial.effective.size(); ++i) {
    TRY(database.run("INSERT INTO trial_effective VALUES (?1,?2,?3,?4,?5)",
                     {run, trial.number, size_of(i), trial.effective[i].name, trial.effective[i].value}));
  }
  for (std::size_t i = 0; i < trial.probes.size(); ++i) {
    const ProbeResult& probe = trial.probes[i];
    TRY(database.run("INSERT INTO probe VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)",
                     {run, trial.number, size_of(i), probe.name, probe.kind, name(probe.outcome), probe.detail, probe.answer,
                      probe.fingerprint, probe.seconds}));
  }
  for (std::size_t i = 0; i < trial.patterns.size(); ++i) {
    const PatternMatch& match = trial.patterns[i];
    TRY(database.run("INSERT INTO pattern_match VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)",
                     {run, trial.number, size_of(i), match.pattern, match.kind == PatternKind::warning ? "warning" : "classification",
                      match.count, match.evidence.text, match.evidence.file, match.evidence.line}));
  }
  for (std::size_t i = 0; i < trial.leftovers.size(); ++i) {
    TRY(database.run("INSERT INTO leftover VALUES (?1,?2,?3,?4)", {run, trial.number, size_of(i), trial.leftovers[i]}));
  }
  return {};
}

Status delete_trial(Database& database, std::int64_t run, std::int64_t number) {
  for (const char* table : kTablesOfTrials) {
    const std::string sql = fmt::format("DELETE FROM {} WHERE run = ?1 AND trial = ?2", table);
    TRY(database.run(sql.c_str(), {run, number}));
  }
  return database.run("DELETE FROM trial WHERE run = ?1 AND number = ?2", {run, number});
}

Status insert_verdict(Database& database, std::int64_t run, std::int64_t position, const Verdict& verdict) {
  TRY(database.run("INSERT INTO verdict VALUES (?1,?2,?3,?4,?5,?6)",
                   {run, position, name(verdict.kind), verdict.name, verdict.confidence, verdict.text}));
  const auto insert_settings = [&](const Settings& settings, std::string_view role) -> Status {
    for (std::size_t i = 0; i < settings.size(); ++i) {
      TRY(database.run("INSERT INTO verdict_setting VALUES (?1,?2,?3,?4,?5,?6)",
                       {run, position, size_of(i), role, settings[i].name, settings[i].value}));
    }
    return {};
  };
  TRY(insert_settings(verdict.settings, "settings"));
  TRY(insert_settings(verdict.from, "from"));
  for (std::size_t i = 0; i < verdict.trials.size(); ++i) {
    TRY(database.run("INSERT INTO verdict_trial VALUES (?1,?2,?3,?4)", {run, position, size_of(i), verdict.trials[i]}));
  }
  return {};
}

constexpr const char* kRunColumns = "id, name, goal, file, file_text, command, folder, started, updated, seed, max_starts, state";

Run run_from(const DatabaseRow& row) {
  return {.id = row.integer(0),
          .name = row.text(1),
          .goal = row.text(2),
          .file = row.text(3),
          .file_text = row.text(4),
          .command = list_from(row.text(5)),
          .folder = row.text(6),
          .started = row.text(7),
          .updated = row.text(8),
          .seed = static_cast<std::uint64_t>(row.integer(9)),
          .max_starts = row.integer(10),
          .state = row.text(11) == "ended" ? RunState::ended : RunState::running};
}

Trial trial_from(const DatabaseRow& row) {
  return {.number = row.integer(0),
          .repeat = row.integer(1),
          .purpose = row.text(2),
          .command = list_from(row.text(3)),
          .started = row.text(4),
          .ended = row.integer(5) != 0,
          .outcome = outcome_from(row.text(6)).value_or(Outcome::no_start),
          .where = row.text(7),
          .evidence = {.text = row.text(8), .file = row.text(9), .line = row.integer(10)},
          .ending = row.text(11),
          .same_as = row.integer(12),
          .fingerprint = row.text(13),
          .start_s = row.number(14),
          .total_s = row.number(15),
          .peak_memory_bytes = row.integer(16),
          .peak_gpu_bytes = row.integer(17),
          .log_file = row.text(18)};
}

Status read_factors(Database& database, RunRecord& record) {
  TRY(database.query("SELECT name, about, effective_key, baseline FROM factor WHERE run = ?1 ORDER BY position", {record.run.id},
                     [&](const DatabaseRow& row) {
                       record.factors.push_back(
                           {.name = row.text(0), .about = row.text(1), .effective_key = row.text(2), .baseline = row.text(3)});
                     }));
  return database.query("SELECT factor, value FROM factor_value WHERE run = ?1 ORDER BY position", {record.run.id},
                        [&](const DatabaseRow& row) {
                          const std::string factor = row.text(0);
                          for (Factor& candidate : record.factors) {
                            if (candidate.name == factor) candidate.values.push_back(row.text(1));
                          }
                        });
}

Status read_trials(Database& database, RunRecord& record) {
  const std::int64_t run = record.run.id;
  std::unordered_map<std::int64_t, std::size_t> index;
  TRY(database.query(
      "SELECT number, repeat, purpose, command, started, ended, outcome, at, evidence, evidence_file, evidence_line, ending, "
      "same_as, fingerprint, start_s, total_s, peak_memory_bytes, peak_gpu_bytes, log_file FROM trial WHERE run = ?1 ORDER "
      "BY number",
      {run}, [&](const DatabaseRow& row) {
        record.trials.push_back(trial_from(row));
        index[record.trials.back().number] = record.trials.size() - 1;
      }));
  // The rows of a table for trials, each given to `take` with its trial.
  const auto each = [&](const char* columns, const char* table, auto take) {
    const std::string sql = fmt::format("SELECT trial, {} FROM {} WHERE run = ?1 ORDER BY trial, position", columns, table);
    return database.query(sql.c_str(), {run}, [&](const DatabaseRow& row) {
      const auto found = index.find(row.integer(0));
      if (found != index.end()) take(record.trials[found->second], row);
    });
  };
  TRY(each("name, value", "trial_setting",
           [](Trial& trial, const DatabaseRow& row) { trial.settings.push_back({.name = row.text(1), .value = row.text(2)}); }));
  TRY(each("name, value", "trial_effective",
           [](Trial& trial, const DatabaseRow& row) { trial.effective.push_back({.name = row.text(1), .value = row.text(2)}); }));
  TRY(each("name, kind, outcome, detail, answer, fingerprint, seconds", "probe", [](Trial& trial, const DatabaseRow& row) {
    trial.probes.push_back({.name = row.text(1),
                            .kind = row.text(2),
                            .outcome = outcome_from(row.text(3)).value_or(Outcome::refused),
                            .detail = row.text(4),
                            .answer = row.text(5),
                            .fingerprint = row.text(6),
                            .seconds = row.number(7)});
  }));
  TRY(each("pattern, kind, count, evidence, evidence_file, evidence_line", "pattern_match", [](Trial& trial, const DatabaseRow& row) {
    trial.patterns.push_back({.pattern = row.text(1),
                              .kind = row.text(2) == "warning" ? PatternKind::warning : PatternKind::classification,
                              .count = row.integer(3),
                              .evidence = {.text = row.text(4), .file = row.text(5), .line = row.integer(6)}});
  }));
  return each("text", "leftover", [](Trial& trial, const DatabaseRow& row) { trial.leftovers.push_back(row.text(1)); });
}

Status read_verdicts(Database& database, RunRecord& record) {
  const std::int64_t run = record.run.id;
  TRY(database.query("SELECT kind, name, confidence, text FROM verdict WHERE run = ?1 ORDER BY position", {run},
                     [&](const DatabaseRow& row) {
                       record.verdicts.push_back({.kind = verdict_kind_from(row.text(0)).value_or(VerdictKind::pattern),
                                                  .name = row.text(1),
                                                  .confidence = row.number(2),
                                                  .text = row.text(3)});
                     }));
  const auto verdict_at = [&](const DatabaseRow& row) -> Verdict* {
    const auto position = static_cast<std::size_t>(row.integer(0));
    return position < record.verdicts.size() ? &record.verdicts[position] : nullptr;
  };
  TRY(database.query("SELECT verdict, role, name, value FROM verdict_setting WHERE run = ?1 ORDER BY verdict, position", {run},
                     [&](const DatabaseRow& row) {
                       Verdict* verdict = verdict_at(row);
                       if (verdict == nullptr) return;
                       Settings& settings = row.text(1) == "from" ? verdict->from : verdict->settings;
                       settings.push_back({.name = row.text(2), .value = row.text(3)});
                     }));
  return database.query("SELECT verdict, trial FROM verdict_trial WHERE run = ?1 ORDER BY verdict, position", {run},
                        [&](const DatabaseRow& row) {
                          if (Verdict* verdict = verdict_at(row)) verdict->trials.push_back(row.integer(1));
                        });
}

Status read_settings(Database& database, const char* table, std::int64_t run, Settings& settings) {
  const std::string sql = fmt::format("SELECT name, value FROM {} WHERE run = ?1 ORDER BY position", table);
  return database.query(sql.c_str(), {run},
                        [&](const DatabaseRow& row) { settings.push_back({.name = row.text(0), .value = row.text(1)}); });
}

Status write_settings(Database& database, const char* table, std::int64_t run, const Settings& settings) {
  const std::string sql = fmt::format("INSERT INTO {} VALUES (?1,?2,?3,?4)", table);
  for (std::size_t i = 0; i < settings.size(); ++i) {
    TRY(database.run(sql.c_str(), {run, size_of(i), settings[i].name, settings[i].value}));
  }
  return {};
}

// Makes the tables of a new file; refuses one of another program, or of a version that this program does not know.
Status prepare(Database& database, const std::filesystem::path& path, Ledger::Access access) {
  std::int64_t version = 0;
  std::int64_t tables = 0;
  TRY(database.query("PRAGMA user_version", {}, [&](const DatabaseRow& row) { version = row.integer(0); }));
  TRY(database.query("SELECT COUNT(*) FROM sqlite_master", {}, [&](const DatabaseRow& row) { tables = row.integer(0); }));
  if (version == 0 && tables == 0 && access == Ledger::Access::write) {
    return database.transaction([&] { return database.run_script(kSchema); });
  }
  if (version == kVersion) return {};
  return Error{
      fmt::format("{}: is no ledger of this version of `reckoner trials` (version {}, expected {})", path.string(), version, kVersion),
      "name another file with --ledger"};
}

}  // namespace

Ledger::Ledger(std::unique_ptr<Database> database, std::filesystem::path path) : database_(std::move(database)), path_(std::move(path)) {}
Ledger::Ledger(Ledger&&) noexcept = default;
Ledger& Ledger::operator=(Ledger&&) noexcept = default;
Ledger::~Ledger() = default;

Result<Ledger> Ledger::open(const std::filesystem::path& path, Access access) {
  if (access == Access::read && !std::filesystem::exists(path)) return no_run(fmt::format("{}: there is no such ledger", path.string()));
  std::unique_ptr<Database> database = TRY(access == Access::read ? Database::open_to_read(path) : Database::open_to_write(path));
  TRY(prepare(*database, path, access));
  return Ledger(std::move(database), path);
}

std::filesystem::path Ledger::folder_of(const Run& run) const { return path_.parent_path() / run.folder; }

Result<std::vector<Run>> Ledger::runs() const {
  std::vector<Run> runs;
  const std::string sql = fmt::format("SELECT {} FROM run ORDER BY id", kRunColumns);
  TRY(database_->query(sql.c_str(), {}, [&](const DatabaseRow& row) { runs.push_back(run_from(row)); }));
  for (Run& run : runs) TRY(read_settings(*database_, "environment", run.id, run.environment));
  return runs;
}

Result<RunRecord> Ledger::read_run(std::int64_t id) const {
  RunRecord record;
  // One view of the file, although another process may be writing.
  TRY(database_->run_script("BEGIN"));
  const auto read = [&]() -> Status {
    const std::string sql = fmt::format("SELECT {} FROM run WHERE id = ?1", kRunColumns);
    TRY(database_->query(sql.c_str(), {id}, [&](const DatabaseRow& row) { record.run = run_from(row); }));
    if (record.run.id == 0) return no_run(fmt::format("{}: there is no run {}", path_.string(), id));
    TRY(read_settings(*database_, "environment", id, record.run.environment));
    TRY(read_settings(*database_, "fixed", id, record.fixed));
    TRY(read_factors(*database_, record));
    TRY(read_trials(*database_, record));
    return read_verdicts(*database_, record);
  };
  const Status done = read();
  TRY(database_->run_script("COMMIT"));
  if (!done) return done.error();
  return record;
}

Result<RunRecord> Ledger::read_latest_run() const {
  std::int64_t id = 0;
  TRY(database_->query("SELECT COALESCE(MAX(id), 0) FROM run", {}, [&](const DatabaseRow& row) { id = row.integer(0); }));
  if (id == 0) return no_run(fmt::format("{}: holds no run", path_.string()));
  return read_run(id);
}

Result<std::int64_t> Ledger::begin_run(const Run& run, const std::vector<Factor>& factors, const Settings& fixed) {
  std::int64_t id = 0;
  const auto write = [&]() -> Status {
    const std::string command = list_text(run.command);
    TRY(
        database_->run("INSERT INTO run (name, goal, file, file_text, command, folder, started, updated, seed, max_starts, state) "
                       "VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,'running')",
                       {run.name, run.goal, run.file, run.file_text, command, run.folder, run.started, run.started,
                        static_cast<std::int64_t>(run.seed), run.max_starts}));
    id = database_->last_row_id();
    TRY(write_settings(*database_, "environment", id, run.environment));
    TRY(write_settings(*database_, "fixed", id, fixed));
    for (std::size_t i = 0; i < factors.size(); ++i) {
      const Factor& factor = factors[i];
      TRY(database_->run("INSERT INTO factor VALUES (?1,?2,?3,?4,?5,?6)",
                         {id, size_of(i), factor.name, factor.about, factor.effective_key, factor.baseline}));
      for (std::size_t j = 0; j < factor.values.size(); ++j) {
        TRY(database_->run("INSERT INTO factor_value VALUES (?1,?2,?3,?4)", {id, factor.name, size_of(j), factor.values[j]}));
      }
    }
    return {};
  };
  TRY(database_->transaction(write));
  return id;
}

Status Ledger::begin_trial(std::int64_t run, const Trial& trial) {
  return database_->transaction([&] { return insert_trial_row(*database_, run, trial); });
}

Status Ledger::end_trial(std::int64_t run, const Trial& trial) {
  CHECK(trial.ended, "a trial that is written as ended has ended");
  return database_->transaction([&]() -> Status {
    TRY(delete_trial(*database_, run, trial.number));
    TRY(insert_trial_row(*database_, run, trial));
    TRY(insert_trial_results(*database_, run, trial));
    return database_->run("UPDATE run SET updated = strftime('%Y-%m-%dT%H:%M:%SZ', 'now') WHERE id = ?1", {run});
  });
}

Status Ledger::forget_trial(std::int64_t run, std::int64_t number) {
  return database_->transaction([&] { return delete_trial(*database_, run, number); });
}

Status Ledger::write_verdicts(std::int64_t run, const std::vector<Verdict>& verdicts) {
  return database_->transaction([&]() -> Status {
    for (const char* table : {"verdict", "verdict_setting", "verdict_trial"}) {
      const std::string sql = fmt::format("DELETE FROM {} WHERE run = ?1", table);
      TRY(database_->run(sql.c_str(), {run}));
    }
    for (std::size_t i = 0; i < verdicts.size(); ++i) TRY(insert_verdict(*database_, run, size_of(i), verdicts[i]));
    return {};
  });
}

Status Ledger::set_state(std::int64_t run, RunState state) {
  return database_->run("UPDATE run SET state = ?2 WHERE id = ?1", {run, state == RunState::ended ? "ended" : "running"});
}

Status Ledger::set_max_starts(std::int64_t run, std::int64_t max_starts) {
  return database_->run("UPDATE run SET max_starts = ?2 WHERE id = ?1", {run, max_starts});
}

}  // namespace reckoner::trials
