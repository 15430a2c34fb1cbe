// `reckoner trials` as a person runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/json.h"
#include "base/mapped_file.h"
#include "diagnose/trials/ledger.h"
#include "diagnose/trials/scratch_test_support.h"
#include "program.h"

namespace reckoner::trials {
namespace {

// An example of the repository, with the programs of this build.
std::string example(const ScratchFolder& folder, const std::string& name, const std::string& more = "") {
  std::ifstream file("examples/trials/" + name);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto replace = [&](const std::string& from, const std::string& to) {
    const std::size_t at = text.find("\"" + from + "\"");
    if (at != std::string::npos) text.replace(at, from.size() + 2, "\"" + to + "\"");
  };
  replace("build/release/fake_server", FAKE_SERVER);
  replace("build/release/reckoner", RECKONER_PROGRAM);
  replace("../..", std::filesystem::current_path().string());
  const std::filesystem::path path = folder.path() / name;
  std::ofstream(path) << text << more;
  return path.string();
}

void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << "wanted '" << part << "' in:\n" << text;
}

TEST(TrialsCli, TellsTheStory) {
  const ScratchFolder folder;
  const std::string file = example(folder, "story.toml");
  const std::string ledger = (folder.path() / "story.ledger").string();
  const ProgramRun run = run_program({"trials", "run", file});
  EXPECT_EQ(run.status, 1) << run.err;
  expect_parts(run.out, {"story: 7 starts in ", ", 0 passed\n", "goal: Serve an NVFP4 model", "No configuration passed",
                         "fp4_gemm was never varied: every trial ran with flashinfer_cutlass.", "Trials 1, 2 and 6 asked for 3",
                         "fp8_gemm has no effect", "Warning 'scale_fmt' in 7 of 7 trials"});
  expect_parts(run.err, {"#7   NaN ", "the same in effect as trial 1", "trial-5.log:10: RuntimeError"});

  const ProgramRun status = run_program({"trials", "status", ledger});
  EXPECT_EQ(status.status, 0);
  expect_parts(status.out, {"#5   wrong architecture nsa=flashmla_sparse", "No configuration passed"});
  expect_parts(run_program({"trials", "show", "5", ledger}).out,
               {"trial 5 of story: wrong architecture", "took effect   attention=flashinfer nsa=flashmla_sparse fp8_gemm=unused",
                "trial-5.log:10: RuntimeError: csrc/attention.hpp:219: Unsupported architecture", "ended         by itself with status 1"});
  expect_parts(run_program({"trials", "diff", "1", "3", ledger}).out, {"asked for:\n  attention ", "fp8_gemm ", "log patterns: the same"});
  const ProgramRun csv = run_program({"trials", "export", ledger, "--format", "csv"});
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 8);
  const Result<JsonDocument> json = parse_json(run_program({"trials", "export", ledger}).out, "export");
  ASSERT_TRUE(json.ok()) << json.error().message();
  EXPECT_EQ(json->root().required("trials")->as_array()->size(), 7U);

  // The report of it: what to do first, and links that lead to the logs from where the page is.
  const ProgramRun report = run_program({"report", ledger});
  EXPECT_EQ(report.status, 0) << report.err;
  expect_parts(report.out, {"# story", "1. Vary fp4\\_gemm=flashinfer\\_cutlass", "ue8m0-scales-misread", "| <a id=\"trial-5\"></a>5 |"});
  const std::string page = (folder.path() / "pages" / "story.html").string();
  std::filesystem::create_directories(folder.path() / "pages");
  EXPECT_EQ(run_program({"report", ledger, "--html", page}).status, 0);
  const std::string html = read_text_file(page, 1 << 20).value();
  expect_parts(html, {"<h1>story</h1>", "href=\"../story.logs/", "fp4_gemm was never varied"});
  EXPECT_EQ(run_program({"report", "no-such.ledger"}).status, 1);
}

TEST(TrialsCli, SaysWhatIsWrong) {
  const ScratchFolder folder;
  const ProgramRun missing = run_program({"trials", "run", (folder.path() / "none.toml").string()});
  EXPECT_EQ(missing.status, 2);
  expect_parts(missing.err, {"reckoner: error: ", "none.toml"});
  const ProgramRun field = run_program({"trials", "run", example(folder, "story.toml", "\n[[probe]]\nkind = \"sniff\"\n")});
  EXPECT_EQ(field.status, 2);
  expect_parts(field.err, {"story.toml: field 'probe[0].kind': 'sniff' is no kind of probe", "what to do: the kinds are health, short"});
  const ProgramRun ledger = run_program({"trials", "status", (folder.path() / "none.ledger").string()});
  EXPECT_EQ(ledger.status, 1);
  expect_parts(ledger.err, {"there is no such ledger"});
  EXPECT_EQ(run_program({"trials"}).status, 2);
  EXPECT_EQ(run_program({"trials", "run", example(folder, "story.toml"), "--resume"}).status, 1);
}

std::vector<Trial> ended_trials(const std::string& ledger) {
  const Result<Ledger> opened = Ledger::open(ledger, Ledger::Access::read);
  if (!opened) return {};
  Result<RunRecord> record = opened->read_latest_run();
  if (!record) return {};
  std::erase_if(record->trials, [](const Trial& trial) { return !trial.ended; });
  return record->trials;
}

// The story with a server that never answers the third configuration, so that a signal finds it at work.
std::string hanging_example(const ScratchFolder& folder) {
  const std::string file = example(folder, "story.toml", "\n[[probe]]\nkind = \"health\"\n[[probe]]\nkind = \"short\"\nmax_s = 100\n");
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string fault = "\"--fail\", \"fp4_gemm=flashinfer_cutlass:nan\"";
  text.replace(text.find(fault), fault.size(), "\"--fail\", \"attention=triton:silent\"");
  std::ofstream(file) << text;
  return file;
}

// Sends a signal to `trials run` when two trials have ended and the third waits for its answer; what waitpid() then says.
int stopped_in_the_third(const std::string& file, const std::string& ledger, int signal_number) {
  const pid_t child = fork();
  if (child == 0) {
    execl(RECKONER_PROGRAM, RECKONER_PROGRAM, "trials", "run", file.c_str(), "--quiet", nullptr);
    _exit(127);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (ended_trials(ledger).size() < 2 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  kill(child, signal_number);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

// kill -9 in the middle of a trial: that trial is lost, its server is ended by the next run, and everything else stays.
TEST(TrialsCli, GoesOnAfterAKill) {
  const ScratchFolder folder;
  const std::string file = hanging_example(folder);
  const std::string ledger = (folder.path() / "story.ledger").string();
  stopped_in_the_third(file, ledger, SIGKILL);
  const std::vector<Trial> before = ended_trials(ledger);
  ASSERT_EQ(before.size(), 2U);

  const ProgramRun resumed = run_program({"trials", "run", file, "--resume"});
  EXPECT_EQ(resumed.status, 1) << resumed.err;
  expect_parts(resumed.err, {"of trial 3 was still running and was ended", "going on with run 1 after 2 trials"});
  const std::vector<Trial> after = ended_trials(ledger);
  ASSERT_EQ(after.size(), 7U);
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].number, static_cast<std::int64_t>(i) + 1);
  EXPECT_EQ(std::vector<Trial>(after.begin(), after.begin() + 2), before);
  EXPECT_EQ(after[2].outcome, Outcome::hang);
}

// SIGTERM, as a service manager sends it, leaves no server behind.
TEST(TrialsCli, ATerminatedRunEndsItsServer) {
  const ScratchFolder folder;
  const std::string file = hanging_example(folder);
  const std::string ledger = (folder.path() / "story.ledger").string();
  const int status = stopped_in_the_third(file, ledger, SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << status;
  const ProgramRun resumed = run_program({"trials", "run", file, "--resume"});
  EXPECT_EQ(resumed.err.find("was still running"), std::string::npos) << resumed.err;
  EXPECT_EQ(ended_trials(ledger).size(), 7U);
}

// A real server: Reckoner, with kernels that write NaN.
TEST(TrialsCli, FindsTheKernelsOfReckonerThatAreWrong) {
  const ScratchFolder folder;
  const std::string file = example(folder, "reckoner.toml");
  const ProgramRun run = run_program({"trials", "run", file, "--max-starts", "8"});
  EXPECT_EQ(run.status, 1) << run.err;
  const RunRecord record = Ledger::open(folder.path() / "reckoner.ledger", Ledger::Access::read)->read_latest_run().value();
  const auto found = std::find_if(record.verdicts.begin(), record.verdicts.end(),
                                  [](const Verdict& verdict) { return verdict.kind == VerdictKind::minimal_failing_set; });
  ASSERT_NE(found, record.verdicts.end()) << run.out;
  ASSERT_EQ(found->settings.size(), 1U);
  EXPECT_EQ(found->settings[0].name, "kernels");
  EXPECT_NE(found->settings[0].value, "scalar");
  expect_parts(run.out, {"NaN"});
}

}  // namespace
}  // namespace reckoner::trials
