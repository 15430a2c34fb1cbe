// Trials of real processes, each of which fails in one way.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "diagnose/trials/campaign.h"
#include "diagnose/trials/processes.h"
#include "diagnose/trials/scratch_test_support.h"

namespace reckoner::trials {
namespace {

// A trial file for the fake server with two settings; `more` are further words of its command, `rest` further tables.
std::string file_text(const std::vector<std::string>& more, const std::string& rest) {
  std::string words;
  for (const std::string& word : more) words += fmt::format(", '{}'", word);
  return fmt::format(R"(
name = "fake"
goal = "two settings"
[target]
command = ['{}', '--port', '{{port}}', 'moe={{moe}}', 'kv={{kv}}'{}]
[limits]
start_s = 3
request_s = 2
stop_s = 1
flake_confidence = 0.2
[[factor]]
name = "moe"
values = ["a", "b"]
[[factor]]
name = "kv"
values = ["bf16", "fp8"]
[[effective]]
key = "moe"
log = 'effective moe=(\S+)'
[[effective]]
key = "kv"
endpoint = "/server_info"
field = "effective.kv"
{})",
                     FAKE_SERVER, words, rest);
}

constexpr const char* kBaselineOnly = "[[configuration]]\nmoe = \"a\"\n";

// As a process that ends between being found and being read: /proc/self/mem opens, and nothing is mapped where reading begins.
TEST(ProcFiles, ReadingThatFailsIsNoException) {
  EXPECT_EQ(read_proc_file("/proc/self/mem"), "");
  EXPECT_EQ(read_proc_file("/proc/self/no_such_file"), "");
  EXPECT_NE(read_proc_file("/proc/self/stat").find("("), std::string::npos);
}

class Processes : public testing::Test {
 protected:
  RunRecord run(const std::vector<std::string>& more, const std::string& rest = kBaselineOnly, std::int64_t max_starts = 40) {
    // Only the list, when there is one.
    const bool is_list = rest.find("[[configuration]]") != std::string::npos;
    const std::string text = (is_list ? "strategy = \"listed\"\n" : "") + file_text(more, rest);
    const Result<TrialFile> file = parse_trial_file(text, "fake.toml", folder_.path());
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message()) << text;
    const Result<RunRecord> record =
        run_campaign(*file, {.ledger = folder_.path() / fmt::format("{}.db", ++runs_), .max_starts = max_starts}, {});
    EXPECT_TRUE(record.ok()) << (record.ok() ? "" : record.error().message());
    return *record;
  }
  Trial one(const std::vector<std::string>& more, const std::string& rest = kBaselineOnly) {
    const RunRecord record = run(more, rest);
    EXPECT_EQ(record.trials.size(), 1U);
    return record.trials.front();
  }
  Trial failing(const std::string& behaviour, const std::string& rest = "") {
    return one({"--fail", "always:" + behaviour}, kBaselineOnly + rest);
  }

  ScratchFolder folder_;
  int runs_ = 0;
};

bool has_verdict(const RunRecord& record, VerdictKind kind, const Settings& settings) {
  return std::any_of(record.verdicts.begin(), record.verdicts.end(),
                     [&](const Verdict& verdict) { return verdict.kind == kind && verdict.settings == settings; });
}

TEST_F(Processes, AServerThatWorksPasses) {
  const Trial trial = one({});
  EXPECT_EQ(trial.outcome, Outcome::pass) << trial.evidence.text;
  EXPECT_TRUE(trial.ended);
  EXPECT_EQ(trial.probes.size(), 6U);
  EXPECT_EQ(trial.effective, (Settings{{"moe", "a"}, {"kv", "bf16"}}));
  EXPECT_GT(trial.peak_memory_bytes, 0);
  EXPECT_GT(trial.total_s, trial.start_s);
  EXPECT_EQ(trial.ending, "on SIGTERM, signal 15 (Terminated)");
  EXPECT_TRUE(trial.leftovers.empty());
  EXPECT_FALSE(trial.fingerprint.empty());
}

TEST_F(Processes, EachFailureIsNamedWithItsLine) {
  struct Case {
    const char* behaviour;
    Outcome outcome;
    const char* where;
    std::int64_t line;  // of the log; the fake server prints two settings first
    const char* part;
  };
  const Case cases[] = {
      {"exit", Outcome::no_start, "start", 3, "KeyError"},
      {"no_arch", Outcome::wrong_architecture, "start", 3, "attention.hpp:219"},
      {"oom_load", Outcome::out_of_memory, "start", 3, "Tried to allocate"},
      {"oom_graph", Outcome::out_of_memory, "graph capture", 4, "Tried to allocate"},
      {"assert", Outcome::assertion, "start", 3, "must match"},
      {"crash", Outcome::crash, "start", 2, "effective moe=a"},
      {"nan", Outcome::nan, "probe short", 4, "probability tensor"},
      {"nan_status", Outcome::nan, "probe short", 0, "NaN detected in the logits"},
      {"garbage", Outcome::garbage, "probe short", 0, "'foss' 8 times in a row"},
      {"ufffd", Outcome::garbage, "probe non_ascii", 0, "2 U+FFFD"},
      {"empty", Outcome::empty, "probe short", 0, "without text"},
      {"unstable", Outcome::wrong, "probe determinism", 0, "1 of 2 answers"},
      {"abort", Outcome::crash, "probe short", 3, "ready"},
      {"abort_late", Outcome::crash, "probe short", 3, "ready"},
      {"silent", Outcome::hang, "probe short", 0, "no answer within 2 s"},
      {"hang", Outcome::hang, "start", 2, "effective moe=a"},
  };
  for (const Case& one_case : cases) {
    const Trial trial = failing(one_case.behaviour);
    SCOPED_TRACE(one_case.behaviour);
    EXPECT_EQ(name(trial.outcome), name(one_case.outcome));
    EXPECT_EQ(trial.where, one_case.where);
    EXPECT_EQ(trial.evidence.line, one_case.line);
    EXPECT_EQ(trial.evidence.file, "trial-1.log");
    EXPECT_NE(trial.evidence.text.find(one_case.part), std::string::npos) << trial.evidence.text;
    EXPECT_TRUE(trial.leftovers.empty());
  }
}

TEST_F(Processes, ProbesOfTheFileAreWhatCounts) {
  const std::string expect = "[[probe]]\nkind = \"expect\"\nprompt = \"What is the capital of France?\"\nanswer = 'Paris'\n";
  EXPECT_EQ(one({}, kBaselineOnly + expect).outcome, Outcome::pass);
  EXPECT_EQ(failing("wrong", expect).outcome, Outcome::wrong);
  EXPECT_EQ(failing("slow", "[[probe]]\nkind = \"short\"\nmax_s = 0.2\n").outcome, Outcome::slow);
  const Trial all = one(
      {}, std::string(kBaselineOnly) +
              "[[probe]]\nkind = \"tool_call\"\n[[probe]]\nkind = \"long_prompt\"\n[[probe]]\nkind = \"long\"\napi = \"completions\"\n");
  EXPECT_EQ(all.outcome, Outcome::pass) << all.evidence.text;
  EXPECT_EQ(all.probes.size(), 3U);
}

TEST_F(Processes, OneThatIgnoresSigtermIsKilledAndNamed) {
  const Trial trial = failing("ignore_term");
  EXPECT_EQ(trial.outcome, Outcome::pass);
  EXPECT_EQ(trial.ending, "killed: it did not end on SIGTERM");
  ASSERT_EQ(trial.leftovers.size(), 1U);
  EXPECT_NE(trial.leftovers[0].find("ignored SIGTERM for 1.0 s and was killed"), std::string::npos);
}

TEST_F(Processes, AChildThatLeftTheGroupIsEndedAndNamed) {
  const RunRecord record = run({"--fail", "always:escape"});
  ASSERT_EQ(record.trials.size(), 1U);
  ASSERT_EQ(record.trials[0].leftovers.size(), 1U) << fmt::format("{}", fmt::join(record.trials[0].leftovers, "\n"));
  EXPECT_NE(record.trials[0].leftovers[0].find("had left the server's process group"), std::string::npos);
  const bool is_said = std::any_of(record.verdicts.begin(), record.verdicts.end(), [](const Verdict& verdict) {
    return verdict.kind == VerdictKind::leftover && verdict.trials == std::vector<std::int64_t>{1};
  });
  EXPECT_TRUE(is_said);
}

// A child that nothing tells apart from other people's processes is not ended; it is named, and the next trial takes another port.
TEST_F(Processes, APortThatStaysTakenIsNamedAndAvoided) {
  const RunRecord record = run({"--fail", "moe=a:escape_unmarked"}, "[[configuration]]\nmoe = \"a\"\n[[configuration]]\nmoe = \"b\"\n");
  ASSERT_EQ(record.trials.size(), 2U);
  ASSERT_EQ(record.trials[0].leftovers.size(), 1U);
  const std::string& said = record.trials[0].leftovers[0];
  EXPECT_NE(said.find("is still taken by process "), std::string::npos) << said;
  EXPECT_NE(said.find("(sleep 60)"), std::string::npos) << said;
  EXPECT_NE(record.trials[0].command[2], record.trials[1].command[2]);
  ASSERT_EQ(record.trials[1].leftovers.size(), 1U);
  EXPECT_NE(record.trials[1].leftovers[0].find("was used"), std::string::npos);
  EXPECT_EQ(record.trials[1].outcome, Outcome::pass);
  const std::optional<PortHolder> holder = port_holder(std::stoll(record.trials[0].command[2]));
  ASSERT_TRUE(holder && holder->process);
  kill(holder->process->id, SIGKILL);
}

TEST_F(Processes, APairIsIsolated) {
  const RunRecord record = run({"--fail", "moe=b,kv=fp8:nan"}, "");
  EXPECT_EQ(record.run.state, RunState::ended);
  EXPECT_TRUE(has_verdict(record, VerdictKind::minimal_failing_set, {{"moe", "b"}, {"kv", "fp8"}}));
  // The same run once more from its ledger has nothing left to do.
  const Result<TrialFile> file = parse_trial_file(file_text({"--fail", "moe=b,kv=fp8:nan"}, ""), "fake.toml", folder_.path());
  const Result<RunRecord> again = run_campaign(*file, {.ledger = folder_.path() / "1.db", .beginning = Beginning::resume}, {});
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->trials, record.trials);
  EXPECT_EQ(again->verdicts, record.verdicts);
}

TEST_F(Processes, ASettingThatIsIgnoredIsInertAndNotProbedTwice) {
  const RunRecord record = run({"--ignore", "kv=bf16"}, "", 6);
  EXPECT_TRUE(has_verdict(record, VerdictKind::inert, {{"kv", "bf16"}, {"kv", "fp8"}}));
  const auto cut = std::find_if(record.trials.begin(), record.trials.end(), [](const Trial& trial) { return trial.same_as != 0; });
  ASSERT_NE(cut, record.trials.end());
  EXPECT_TRUE(cut->probes.empty());
}

TEST_F(Processes, NonePassingSaysSo) {
  const RunRecord record = run({"--fail", "always:nan"}, "[fixed]\nfp4 = \"auto\"\n");
  ASSERT_FALSE(record.verdicts.empty());
  EXPECT_EQ(record.verdicts[0].kind, VerdictKind::none_passed);
  EXPECT_TRUE(has_verdict(record, VerdictKind::never_varied, {{"fp4", "auto"}}));
  EXPECT_FALSE(has_verdict(record, VerdictKind::never_varied, {{"moe", "a"}}));
}

TEST_F(Processes, AProgramThatIsNotThereIsAnError) {
  std::string text = "strategy = \"listed\"\n" + file_text({}, kBaselineOnly);
  text.replace(text.find(FAKE_SERVER), std::string(FAKE_SERVER).size(), "/nowhere/server");
  const Result<TrialFile> file = parse_trial_file(text, "fake.toml", folder_.path());
  const Result<RunRecord> record = run_campaign(*file, {.ledger = folder_.path() / "l.db"}, {});
  ASSERT_FALSE(record.ok());
  EXPECT_NE(record.error().what.find("'/nowhere/server' cannot be started"), std::string::npos);
  EXPECT_TRUE(Ledger::open(folder_.path() / "l.db", Ledger::Access::read)->read_latest_run()->trials.empty());
}

}  // namespace
}  // namespace reckoner::trials
