// `reckoner lint` over damaged models: each damage gives exactly the findings that it should, and they say where and what.
#include "diagnose/lint/lint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "lint_case.h"

namespace reckoner {

lint::LintReport lint_model(const std::filesystem::path& folder, const lint::LintOptions& options) {
  ThreadPool pool(2);
  Result<lint::LintReport> report = lint::lint_folder(folder, options, pool);
  EXPECT_TRUE(report.ok()) << report.error().message();
  return report ? std::move(report).value() : lint::LintReport();
}

namespace {

namespace fs = std::filesystem;
using lint::FindingGroup;
using lint::LintReport;
using lint::Severity;

std::string text_of(const FindingGroup& group) {
  std::string text;
  for (const lint::Finding& finding : group.findings) text += fmt::format("{}: {}\n", finding.where, finding.what);
  return text;
}

std::string text_of(const LintReport& report) {
  std::string text;
  for (const FindingGroup* group : report.groups()) text += fmt::format("{} ({}):\n{}", group->kind->id, group->count, text_of(*group));
  return text;
}

std::set<std::string> wrong_ids(const LintReport& report) {
  std::set<std::string> ids;
  for (const FindingGroup* group : report.groups()) {
    if (group->kind->severity != Severity::note) ids.emplace(group->kind->id);
  }
  return ids;
}

// "id: word, word"
struct Expected {
  std::string id;
  std::vector<std::string> words;
};

Expected parse(const std::string& text) {
  const std::size_t colon = text.find(": ");
  Expected expected{.id = text.substr(0, colon)};
  if (colon == std::string::npos) return expected;
  std::string rest = text.substr(colon + 2);
  for (std::size_t comma = rest.find(", "); comma != std::string::npos; comma = rest.find(", ")) {
    expected.words.push_back(rest.substr(0, comma));
    rest.erase(0, comma + 2);
  }
  expected.words.push_back(rest);
  return expected;
}

class Lint : public testing::TestWithParam<LintCase> {};

TEST_P(Lint, GivesItsFindings) {
  const LintCase& c = GetParam();
  const ModelCopy model(c.base);
  c.damage(model);
  const std::vector<std::string> before = model.listing();
  const LintReport report = lint_model(model.path(), {.depth = lint::LintDepth::deep});
  EXPECT_EQ(model.listing(), before) << "something was written into the model folder";
  std::set<std::string> ids;
  for (const std::string& text : c.expected) {
    const Expected expected = parse(text);
    const FindingGroup* group = report.find(expected.id);
    ASSERT_NE(group, nullptr) << "no " << expected.id << " in\n" << text_of(report);
    if (group->kind->severity != Severity::note) ids.insert(expected.id);
    for (const std::string& word : expected.words)
      EXPECT_NE(text_of(*group).find(word), std::string::npos) << word << " in\n" << text_of(*group);
  }
  EXPECT_EQ(wrong_ids(report), ids) << text_of(report);
}

std::string name_of(const testing::TestParamInfo<LintCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Files, Lint, testing::ValuesIn(file_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Quant, Lint, testing::ValuesIn(quant_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Model, Lint, testing::ValuesIn(model_cases()), name_of);

TEST(LintClean, PublishedFoldersHaveNeitherWarningsNorErrors) {
  std::vector<fs::path> folders = {"models/pocket"};
  for (const fs::directory_entry& entry : fs::directory_iterator("tests/golden")) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  EXPECT_GT(folders.size(), 5u);
  for (const fs::path& folder : folders) {
    const LintReport report = lint_model(folder, {.depth = lint::LintDepth::deep});
    EXPECT_TRUE(report.clean()) << folder << "\n" << text_of(report);
    EXPECT_EQ(report.has("tokenizer-missing"), folder != "models/pocket");
  }
}

TEST(LintFolder, WithoutAModelIsAnError) {
  ThreadPool pool(1);
  const Result<LintReport> report = lint::lint_folder("tests/lint", {}, pool);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().what.find("no model"), std::string::npos);
}

// The catalogue, the page about it, and the cases belong together.
TEST(LintCatalogue, EveryKindIsDocumentedAndTested) {
  std::ifstream file("docs/lint.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  std::set<std::string> tested = {"hash-mismatch", "hash-unknown", "file-holes", "file-not-filled",
                                  "mtp-undeclared"};  // tests of their own
  for (const std::span<const LintCase> cases : {file_cases(), quant_cases(), model_cases()}) {
    for (const LintCase& c : cases) {
      for (const std::string& expected : c.expected) tested.insert(parse(expected).id);
    }
  }
  std::set<std::string_view> ids;
  for (const lint::FindingKind& kind : lint::catalogue()) {
    EXPECT_TRUE(ids.insert(kind.id).second) << kind.id << " is there twice";
    const std::string_view severity = kind.severity == Severity::error ? "error" : kind.severity == Severity::warning ? "warning" : "note";
    EXPECT_NE(page.find(fmt::format("| `{}` | {} |", kind.id, severity)), std::string::npos) << kind.id << " is not in docs/lint.md";
    EXPECT_TRUE(tested.contains(std::string(kind.id))) << kind.id << " has no test";
    EXPECT_FALSE(kind.title.empty() || kind.why.empty()) << kind.id;
  }
}

TEST(LintReport, CountsAllAndKeepsTheFirst) {
  LintReport report;
  for (std::int64_t i = 0; i < 1000; ++i) report.add("scale-missing", {"x", "y", i % 7, i});
  report.add("mtp-absent", {"x", "y"});
  EXPECT_EQ(report.count(Severity::error), 1000);
  EXPECT_EQ(report.find("scale-missing")->findings.size(), FindingGroup::kKept);
  EXPECT_EQ(report.find("scale-missing")->layers.size(), 7u);
  EXPECT_EQ(report.groups().front()->kind->id, "scale-missing");
  EXPECT_FALSE(report.clean());
}

}  // namespace
}  // namespace reckoner
