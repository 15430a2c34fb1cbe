#include "diagnose/report/report.h"

#include <gtest/gtest.h>

namespace reckoner::report {
namespace {

using namespace trials;

// Two of three trials failed; one factor did nothing; a setting was never touched.
RunRecord story() {
  RunRecord record;
  record.run = {.id = 1,
                .name = "GLM-5 <NVFP4>",
                .goal = "serve it on 8 GPUs",
                .file = "story.toml",
                .command = {"serve", "--moe", "{moe}"},
                .folder = "story.logs",
                .environment = {{"host", "lab-1"}},
                .started = "2026-03-01T12:00:00Z",
                .updated = "2026-03-01T12:10:00Z",
                .max_starts = 40,
                .state = RunState::ended};
  record.factors = {{.name = "moe", .values = {"a", "b"}, .baseline = "a"}, {.name = "kv", .values = {"auto", "fp8"}, .baseline = "auto"}};
  record.fixed = {{"fp4-gemm", "cutlass"}};
  record.trials = {
      {.number = 1,
       .settings = {{"moe", "a"}, {"kv", "auto"}},
       .command = {"serve", "--moe", "a", "--name", "my model"},
       .ended = true,
       .outcome = Outcome::pass,
       .start_s = 2,
       .total_s = 5,
       .peak_memory_bytes = 3'000'000'000,
       .log_file = "trial-1.log"},
      {.number = 2,
       .settings = {{"moe", "b"}, {"kv", "auto"}},
       .ended = true,
       .outcome = Outcome::nan,
       .where = "probe short",
       .evidence = {.text = "probability tensor contains <inf> or nan | *here*", .file = "trial-2.log", .line = 17},
       .total_s = 9,
       .log_file = "trial-2.log"},
      {.number = 3, .settings = {{"moe", "b"}, {"kv", "fp8"}}, .ended = true, .outcome = Outcome::nan, .log_file = "trial-3.log"}};
  record.verdicts = {
      {.kind = VerdictKind::minimal_failing_set, .settings = {{"moe", "b"}}, .trials = {2, 1}, .text = "moe=b alone makes it fail."},
      {.kind = VerdictKind::inert, .settings = {{"kv", "fp8"}}, .trials = {2, 3}, .text = "kv had no effect."},
      {.kind = VerdictKind::eliminated, .settings = {{"moe", "a"}}, .trials = {1}, .text = "moe=a passed in trial 1."},
      {.kind = VerdictKind::never_varied, .settings = {{"fp4-gemm", "cutlass"}}, .text = "fp4-gemm was cutlass throughout."}};
  return record;
}

Document document_of(const RunRecord& record, std::vector<KnownFailure> known = {}) {
  return build({.record = record, .ledger = "story.db", .logs = "story.logs", .known = std::move(known)});
}

const Section& section(const Document& document, std::string_view id) {
  for (const Section& one : document.sections) {
    if (one.id == id) return one;
  }
  ADD_FAILURE() << "no section " << id;
  return document.sections.front();
}

bool says(const Section& section, std::string_view text) {
  for (const Statement& statement : section.statements) {
    if (statement.text.find(text) != std::string::npos) return true;
  }
  return false;
}

TEST(Report, EveryStatementHasEvidenceThatIsThere) {
  const RunRecord record = story();
  const Document document = document_of(record);
  for (const Section& one : document.sections) {
    for (const Statement& statement : one.statements) {
      ASSERT_FALSE(statement.evidence.empty()) << statement.text;
      for (const Link& link : statement.evidence) {
        const bool trial = link.target == "#trial-1" || link.target == "#trial-2" || link.target == "#trial-3";
        EXPECT_TRUE(trial || link.target == "story.toml" || link.target.starts_with("story.logs/trial-")) << link.target;
      }
    }
  }
}

TEST(Report, EachVerdictStandsInItsSection) {
  const RunRecord record = story();
  const Document document = document_of(record);
  EXPECT_TRUE(says(section(document, "discoveries"), "moe=b alone makes it fail."));
  EXPECT_TRUE(says(section(document, "discoveries"), "kv had no effect."));
  EXPECT_TRUE(says(section(document, "eliminated"), "moe=a passed"));
  EXPECT_TRUE(says(section(document, "never-varied"), "fp4-gemm"));
  EXPECT_TRUE(says(section(document, "issues"), "NaN: 2 of 3 trials (first at: probe short)"));
  EXPECT_EQ(section(document, "configurations").table.rows.size(), 3u);
  EXPECT_EQ(section(document, "configurations").table.rows[0][1].text, "baseline");
  EXPECT_EQ(section(document, "configurations").table.rows[2][1].text, "moe=b kv=fp8");
}

TEST(Report, NextStepsBeginWithWhatWorks) {
  const RunRecord record = story();
  const Section steps = section(document_of(record), "next");
  ASSERT_EQ(steps.statements.size(), 4u);
  EXPECT_EQ(steps.statements[0].text, "Serve with what passed in trial 1: serve --moe a --name 'my model'");
  EXPECT_TRUE(steps.statements[1].text.starts_with("Keep moe=b apart"));
  EXPECT_TRUE(steps.statements[2].text.starts_with("Vary fp4-gemm=cutlass"));
  EXPECT_TRUE(steps.statements[3].text.starts_with("Leave kv out"));
}

// What a known failure's remedy names is the first thing to vary.
TEST(Report, KnownFailuresPointAtWhatWasNeverVaried) {
  RunRecord record = story();
  record.trials.erase(record.trials.begin());
  record.verdicts = {{.kind = VerdictKind::none_passed, .trials = {2, 3}, .text = "No configuration passed."},
                     {.kind = VerdictKind::never_varied, .settings = {{"host-memory", "8"}}, .text = "host-memory was 8."},
                     {.kind = VerdictKind::never_varied, .settings = {{"fp4-gemm", "cutlass"}}, .text = "fp4-gemm was cutlass."}};
  const KnownFailure known = {.id = "fp4-race",
                              .title = "A race in FP4 GEMM",
                              .cause = "a barrier is compiled out.",
                              .remedy = "Change the FP4 GEMM backend to cuDNN.",
                              .confidence = "confirmed",
                              .sources = {"https://example.org/1"},
                              .lines = {{.text = "nan", .file = "trial-2.log", .line = 17}}};
  const Document document = document_of(record, {known});
  EXPECT_TRUE(says(section(document, "findings"), "A race in FP4 GEMM (fp4-race). Cause (confirmed)"));
  const Section& steps = section(document, "next");
  EXPECT_TRUE(steps.statements[0].text.starts_with("Vary fp4-gemm=cutlass: it was the same in every trial"));
  EXPECT_TRUE(steps.statements[0].text.ends_with("names it."));
  EXPECT_TRUE(steps.statements[1].text.starts_with("Try what fp4-race recommends: Change the FP4 GEMM backend to cuDNN."));
  EXPECT_TRUE(steps.statements[2].text.starts_with("Vary host-memory=8"));
  EXPECT_EQ(document.summary.back(), "host-memory was 8.");
}

TEST(Report, MarkdownKeepsLogLinesAsTheyAre) {
  const RunRecord record = story();
  const std::string text = to_markdown(document_of(record));
  EXPECT_NE(text.find("# GLM-5 \\<NVFP4\\>"), std::string::npos);
  EXPECT_NE(text.find("contains \\<inf\\> or nan \\| \\*here\\*"), std::string::npos);
  EXPECT_NE(text.find("([trial-2.log:17](<story.logs/trial-2.log>), [trial 2](<#trial-2>), [trial 3](<#trial-3>))"), std::string::npos);
  EXPECT_NE(text.find("<a id=\"trial-2\"></a>"), std::string::npos);
}

TEST(Report, HtmlStandsAloneAndTrustsNoLog) {
  RunRecord record = story();
  record.trials[1].evidence.text = "<script>alert('x')</script>";
  record.trials[2].evidence = {.text = "y", .file = "javascript:alert(1)", .line = 1};
  const Document document = build({.record = record, .ledger = "story.db", .logs = ""});
  const std::string html = to_html(document);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("href=\"javascript"), std::string::npos);
  EXPECT_NE(html.find("<tr id=\"trial-3\">"), std::string::npos);
  EXPECT_EQ(html.find("src="), std::string::npos);
  EXPECT_EQ(html.find("<link"), std::string::npos);
}

TEST(Report, DoctorAndTraceAreEvidenceToo) {
  const RunRecord record = story();
  const auto output = [](const std::string& path, std::string_view text) { return ToolOutput{path, parse_json(text, path).value()}; };
  Sources sources{.record = record, .ledger = "story.db", .logs = "story.logs"};
  sources.doctor = {output("doctor.json", R"({"verdict": "doubtful", "memory": {"total_bytes": 9.1e10, "available_bytes": 9.6e10},
                                             "problems": [], "doubts": ["no peer access"]})")};
  sources.traces = {output("trace.json", R"({"model": "glm5", "verdict": "layer 3, linear_experts, expert 17: NaN"})"),
                    output("old.json", "[1, 2]")};
  const Document document = build(sources);
  EXPECT_TRUE(says(section(document, "environment"), "The doctor's verdict: doubtful."));
  EXPECT_TRUE(says(section(document, "environment"), "91.00 GB of 96.00 GB"));
  EXPECT_TRUE(says(section(document, "environment"), "A doubt: no peer access"));
  EXPECT_TRUE(says(section(document, "discoveries"), "Trace of glm5: layer 3, linear_experts, expert 17: NaN."));
}

TEST(Report, AnEmptyLedgerSaysSo) {
  RunRecord record;
  record.run.file = "x.toml";
  const Document document = document_of(record);
  EXPECT_EQ(document.summary.front(), "0 trials ended, 0 of them passed.");
  const std::string text = to_markdown(document);
  EXPECT_NE(text.find("No trial has ended yet."), std::string::npos);
  EXPECT_NE(text.find("Go on where the trials stopped"), std::string::npos);
}

}  // namespace
}  // namespace reckoner::report
