#include "diagnose/trials/ledger.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "diagnose/trials/scratch_test_support.h"

namespace reckoner::trials {
namespace {

Run example_run() {
  return {.name = "story",
          .goal = "serve 'it'",
          .file = "story.toml",
          .file_text = "name = \"story\"\n",
          .command = {"serve", "{moe}", "a \"quoted\" word", ""},
          .folder = "story.logs",
          .environment = {{"host", "lab-1"}, {"cores", "8"}},
          .started = "2026-03-01T12:00:00Z",
          .seed = 0xFFFFFFFFFFFFFFFF,
          .max_starts = 40};
}

std::vector<Factor> example_factors() {
  return {{.name = "moe", .about = "the MoE kernels", .effective_key = "moe_backend", .values = {"b", "a", "c"}, .baseline = "a"},
          {.name = "kv", .about = "", .effective_key = "kv", .values = {"auto", "fp8"}, .baseline = "auto"}};
}

Trial example_trial(std::int64_t number) {
  return {
      .number = number,
      .repeat = 1,
      .purpose = "moe=b alone",
      .settings = {{"moe", "b"}, {"kv", "auto"}},
      .command = {"serve", "--moe", "b"},
      .started = "2026-03-01T12:00:01Z",
      .ended = true,
      .outcome = Outcome::out_of_memory,
      .where = "graph capture",
      .evidence = {.text = "CUDA out of memory: \xC3\xA9", .file = "trial-1.log", .line = 812},
      .ending = "by itself with status 1",
      .same_as = 0,
      .effective = {{"moe_backend", "b"}, {"kv", "bfloat16"}},
      .fingerprint = "00ff",
      .start_s = 12.5,
      .total_s = 13.25,
      .peak_memory_bytes = 123'456'789'012,
      .peak_gpu_bytes = -1,
      .log_file = "trial-1.log",
      .probes = {{.name = "health", .kind = "health", .outcome = Outcome::pass, .seconds = 0.5},
                 {.name = "words",
                  .kind = "non_ascii",
                  .outcome = Outcome::garbage,
                  .detail = "2 U+FFFD",
                  .answer = "\xEF\xBF\xBD",
                  .fingerprint = "1f"}},
      .patterns = {{.pattern = "scale_fmt", .kind = PatternKind::warning, .count = 3, .evidence = {"not ue8m0", "trial-1.log", 7}},
                   {.pattern = "oom", .kind = PatternKind::classification, .count = 1, .evidence = {"out of memory", "trial-1.log", 8}}},
      .leftovers = {"process 7 (worker) was still there"}};
}

std::vector<Verdict> example_verdicts() {
  return {{.kind = VerdictKind::minimal_failing_set,
           .settings = {{"moe", "b"}, {"kv", "fp8"}},
           .from = {{"moe", "a"}, {"kv", "auto"}},
           .trials = {3, 1},
           .confidence = 0.75,
           .text = "moe=b with kv=fp8 fails"},
          {.kind = VerdictKind::pattern, .name = "scale_fmt", .text = "seen"}};
}

TEST(Ledger, KeepsEverythingThatWasWritten) {
  const ScratchFolder folder;
  {
    Ledger ledger = Ledger::open(folder.path() / "l.db", Ledger::Access::write).value();
    ASSERT_EQ(ledger.begin_run(example_run(), example_factors(), {{"fp4", "auto"}}).value(), 1);
    Trial begun = example_trial(1);
    begun.ended = false;
    ASSERT_TRUE(ledger.begin_trial(1, begun).ok());
    ASSERT_TRUE(ledger.end_trial(1, example_trial(1)).ok());
    ASSERT_TRUE(ledger.begin_trial(1, example_trial(2)).ok());
    ASSERT_TRUE(ledger.write_verdicts(1, {example_verdicts()[1]}).ok());
    ASSERT_TRUE(ledger.write_verdicts(1, example_verdicts()).ok());
  }
  const Ledger ledger = Ledger::open(folder.path() / "l.db", Ledger::Access::read).value();
  const RunRecord record = ledger.read_latest_run().value();
  const trials::Run expected = example_run();
  EXPECT_EQ(record.run.name, expected.name);
  EXPECT_EQ(record.run.goal, expected.goal);
  EXPECT_EQ(record.run.file_text, expected.file_text);
  EXPECT_EQ(record.run.command, expected.command);
  EXPECT_EQ(record.run.environment, expected.environment);
  EXPECT_EQ(record.run.seed, expected.seed);
  EXPECT_EQ(record.run.max_starts, 40);
  EXPECT_EQ(record.run.state, RunState::running);
  EXPECT_EQ(ledger.folder_of(record.run), folder.path() / "story.logs");
  EXPECT_EQ(record.factors, example_factors());
  EXPECT_EQ(record.fixed, (Settings{{"fp4", "auto"}}));
  ASSERT_EQ(record.trials.size(), 2U);
  EXPECT_EQ(record.trials[0], example_trial(1));
  EXPECT_EQ(record.trials[1].settings, example_trial(2).settings);
  EXPECT_EQ(record.verdicts, example_verdicts());
}

TEST(Ledger, RunsAreApart) {
  const ScratchFolder folder;
  Ledger ledger = Ledger::open(folder.path() / "l.db", Ledger::Access::write).value();
  ASSERT_EQ(ledger.begin_run(example_run(), example_factors(), {}).value(), 1);
  ASSERT_EQ(ledger.begin_run(example_run(), {}, {}).value(), 2);
  ASSERT_TRUE(ledger.end_trial(1, example_trial(1)).ok());
  ASSERT_TRUE(ledger.end_trial(2, example_trial(1)).ok());
  ASSERT_TRUE(ledger.forget_trial(2, 1).ok());
  ASSERT_TRUE(ledger.set_state(1, RunState::ended).ok());
  ASSERT_TRUE(ledger.set_max_starts(2, 7).ok());
  EXPECT_EQ(ledger.read_run(1).value().trials, std::vector<Trial>{example_trial(1)});
  EXPECT_TRUE(ledger.read_run(2).value().trials.empty());
  EXPECT_EQ(ledger.read_run(1).value().run.state, RunState::ended);
  EXPECT_EQ(ledger.read_run(2).value().run.max_starts, 7);
  EXPECT_EQ(ledger.runs().value().size(), 2U);
  EXPECT_FALSE(ledger.read_run(3).ok());
}

TEST(Ledger, RefusesWhatIsNoLedger) {
  const ScratchFolder folder;
  EXPECT_NE(Ledger::open(folder.path() / "none.db", Ledger::Access::read).error().what.find("no such ledger"), std::string::npos);
  std::ofstream(folder.path() / "text.db") << std::string(5000, 'x');
  EXPECT_FALSE(Ledger::open(folder.path() / "text.db", Ledger::Access::read).ok());
  EXPECT_FALSE(Ledger::open(folder.path() / "text.db", Ledger::Access::write).ok());
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open((folder.path() / "other.db").c_str(), &handle), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(handle, "CREATE TABLE t (a); PRAGMA user_version = 2", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(handle);
  EXPECT_NE(Ledger::open(folder.path() / "other.db", Ledger::Access::write).error().what.find("version 2, expected 1"), std::string::npos);
}

// A process that is killed between begin and end leaves a trial that has not ended, and nothing half.
TEST(Ledger, SurvivesAKill) {
  const ScratchFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    Ledger ledger = Ledger::open(folder.path() / "l.db", Ledger::Access::write).value();
    static_cast<void>(ledger.begin_run(example_run(), example_factors(), {}));
    static_cast<void>(ledger.end_trial(1, example_trial(1)));
    Trial begun = example_trial(2);
    begun.ended = false;
    static_cast<void>(ledger.begin_trial(1, begun));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const RunRecord record = Ledger::open(folder.path() / "l.db", Ledger::Access::write).value().read_latest_run().value();
  ASSERT_EQ(record.trials.size(), 2U);
  EXPECT_EQ(record.trials[0], example_trial(1));
  EXPECT_FALSE(record.trials[1].ended);
}

TEST(Ledger, EveryOutcomeAndVerdictHasANameThatReadsBack) {
  for (const Outcome outcome : kOutcomes) {
    EXPECT_EQ(outcome_from(name(outcome)), outcome);
    EXPECT_FALSE(description(outcome).empty());
  }
  for (int kind = 0; kind <= static_cast<int>(VerdictKind::budget_spent); ++kind) {
    EXPECT_EQ(verdict_kind_from(name(static_cast<VerdictKind>(kind))), static_cast<VerdictKind>(kind));
  }
}

}  // namespace
}  // namespace reckoner::trials
