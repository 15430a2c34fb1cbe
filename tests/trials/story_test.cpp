// The example of seven configurations that taught nobody anything: what trials say about it.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "diagnose/trials/campaign.h"
#include "diagnose/trials/scratch_test_support.h"

namespace reckoner::trials {
namespace {

std::string example(const std::string& name) {
  std::ifstream file("examples/trials/" + name);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string program = "build/release/fake_server";
  text.replace(text.find(program, text.find("command")), program.size(), FAKE_SERVER);
  return text;
}

const Verdict* verdict_of(const RunRecord& record, VerdictKind kind, const std::string& setting) {
  const auto found = std::find_if(record.verdicts.begin(), record.verdicts.end(), [&](const Verdict& verdict) {
    return verdict.kind == kind && (verdict.name == setting || (!verdict.settings.empty() && verdict.settings.front().name == setting));
  });
  return found == record.verdicts.end() ? nullptr : &*found;
}

TEST(Story, SaysWhatWasInertWhatWasTheSameAndWhatWasNeverVaried) {
  const ScratchFolder folder;
  const Result<TrialFile> file = parse_trial_file(example("story.toml"), "story.toml", std::filesystem::absolute("examples/trials"));
  ASSERT_TRUE(file.ok()) << file.error().message();
  const Result<RunRecord> record = run_campaign(*file, {.ledger = folder.path() / "story.ledger"}, {});
  ASSERT_TRUE(record.ok()) << record.error().message();

  // Seven were listed.
  ASSERT_EQ(record->trials.size(), 7U);
  for (const Trial& trial : record->trials) EXPECT_EQ(trial.outcome, trial.number == 5 ? Outcome::wrong_architecture : Outcome::nan);
  EXPECT_EQ(record->verdicts[0].kind, VerdictKind::none_passed);
  EXPECT_EQ(record->verdicts[0].text, "No configuration passed (7 starts: 6 NaN and 1 wrong architecture).");

  const Verdict* fp4 = verdict_of(*record, VerdictKind::never_varied, "fp4_gemm");
  ASSERT_NE(fp4, nullptr);
  EXPECT_EQ(fp4->text, "fp4_gemm was never varied: every trial ran with flashinfer_cutlass.");

  // 1, 2 and 6 differ in a cache type that is overridden, an unused GEMM and a name for the same kernels; 3 and 4 likewise.
  std::vector<std::vector<std::int64_t>> equal;
  for (const Verdict& verdict : record->verdicts) {
    if (verdict.kind == VerdictKind::equal_configurations) equal.push_back(verdict.trials);
  }
  EXPECT_EQ(equal, (std::vector<std::vector<std::int64_t>>{{1, 2, 6}, {3, 4}}));

  EXPECT_NE(verdict_of(*record, VerdictKind::inert, "fp8_gemm"), nullptr);
  EXPECT_NE(verdict_of(*record, VerdictKind::inert, "kv_dtype"), nullptr);
  EXPECT_EQ(verdict_of(*record, VerdictKind::inert, "attention"), nullptr);
  EXPECT_EQ(verdict_of(*record, VerdictKind::inert, "graphs"), nullptr);
  EXPECT_NE(verdict_of(*record, VerdictKind::overridden, "nsa"), nullptr);
  for (const char* warning : {"scale_fmt", "rope_parameters", "kv_override"}) {
    const Verdict* verdict = verdict_of(*record, VerdictKind::pattern, warning);
    ASSERT_NE(verdict, nullptr) << warning;
    EXPECT_EQ(verdict->trials.size(), 7U);
  }
}

// With the FP4 GEMM among the factors the same server gives its secret away.
TEST(Story, IsSolvedWhenTheRightSettingIsVaried) {
  const ScratchFolder folder;
  std::string text = example("story.toml");
  const auto replace = [&](const std::string& from, const std::string& to) { text.replace(text.find(from), from.size(), to); };
  replace("strategy = \"listed\"", "strategy = \"isolate\"");
  replace("\"fp4_gemm=flashinfer_cutlass\"", "\"fp4_gemm={fp4_gemm}\"");
  replace("fp4_gemm = \"flashinfer_cutlass\"\n", "");
  text += "[[factor]]\nname = \"fp4_gemm\"\nvalues = [\"flashinfer_cutlass\", \"flashinfer_cudnn\"]\n";
  const Result<TrialFile> file = parse_trial_file(text, "story.toml", std::filesystem::absolute("examples/trials"));
  ASSERT_TRUE(file.ok()) << file.error().message();
  const Result<RunRecord> record = run_campaign(*file, {.ledger = folder.path() / "story.ledger", .max_starts = 24}, {});
  ASSERT_TRUE(record.ok()) << record.error().message();
  const Verdict* found = verdict_of(*record, VerdictKind::minimal_failing_set, "fp4_gemm");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->settings, (Settings{{"fp4_gemm", "flashinfer_cutlass"}}));
}

}  // namespace
}  // namespace reckoner::trials
