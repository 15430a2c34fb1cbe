#include "diagnose/findings/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "diagnose/findings/versions.h"

namespace reckoner::findings {
namespace {

const std::vector<Finding>& shipped() {
  static const Result<std::vector<Finding>> all = load_findings();
  EXPECT_TRUE(all.ok()) << all.error().message();
  return *all;
}

std::set<std::string> ids(const std::vector<TextMatch>& matches) {
  std::set<std::string> found;
  for (const TextMatch& match : matches) found.insert(match.finding->id);
  return found;
}

bool are_related(const Finding& a, const Finding& b) {
  const auto names = [](const Finding& one, const std::string& id) {
    return std::find(one.related.begin(), one.related.end(), id) != one.related.end();
  };
  return names(a, b.id) || names(b, a.id);
}

TEST(Findings, TheFilesOfTheFolderArePartOfTheProgram) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("findings")) files.insert(entry.path().stem().string());
  std::set<std::string> inside;
  for (const Finding& finding : shipped()) inside.insert(finding.id);
  EXPECT_EQ(inside, files);
  const auto confirmed =
      std::count_if(shipped().begin(), shipped().end(), [](const Finding& one) { return one.confidence == Confidence::confirmed; });
  EXPECT_GE(confirmed, 60);
}

TEST(Findings, AnExampleIsItsOwnFindingAndNoUnrelatedOne) {
  for (const Finding& finding : shipped()) {
    for (const Symptom& symptom : finding.symptoms) {
      if (!symptom.pattern) continue;
      const std::vector<std::string> log = {"starting", symptom.example_also, symptom.example};
      const std::vector<TextMatch> matches = match_text(shipped(), log);
      EXPECT_TRUE(ids(matches).contains(finding.id)) << finding.id << ": " << symptom.example;
      for (const TextMatch& match : matches) {
        EXPECT_TRUE(match.finding == &finding || are_related(finding, *match.finding))
            << finding.id << "'s example is also " << match.finding->id << "'s: " << symptom.example;
      }
    }
  }
}

// A server that starts and answers well shows nothing but notices.
TEST(Findings, AnOrdinaryLogShowsNone) {
  const std::vector<std::string> log = {
      "INFO 03-04 10:00:01 [__init__.py:216] Automatically detected platform cuda.",
      "Loading safetensors checkpoint shards: 100% Completed | 47/47 [03:12<00:00,  4.09s/it]",
      "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|##########| 67/67 [00:05<00:00, 12.9it/s]",
      "INFO:     127.0.0.1:51234 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK",
      "[2026-03-04 10:03:11 TP0] Decode batch. #running-req: 3, #token: 5112, token usage: 0.01, gen throughput (token/s): 96.31",
      "llama_kv_cache: size = 1024.00 MiB ( 16384 cells,  61 layers, 1/1 seqs), K (f16): 512.00 MiB, V (f16): 512.00 MiB",
      "{\"choices\":[{\"message\":{\"content\":\"Hello! How can I help?\",\"reasoning_content\":\"The user "
      "greets.\"},\"finish_reason\":\"stop\"}]}",
  };
  const std::vector<TextMatch> matches = match_text(shipped(), log);
  EXPECT_TRUE(matches.empty()) << matches.front().finding->id << ": " << matches.front().line;
}

TEST(Findings, TheEvidenceIsTheFirstLineWithItsNumberAndCount) {
  std::stringstream log;
  for (int i = 1; i <= 1000; ++i) {
    log << (i == 400 || i == 900 ? "W DeepGemm is enabled but the scale_fmt of checkpoint is not ue8m0.\r" : "nothing of note") << "\n";
  }
  const std::vector<TextMatch> matches = match_text(shipped(), log);
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].finding->id, "ue8m0-scales-misread");
  EXPECT_EQ(matches[0].line_number, 400);
  EXPECT_EQ(matches[0].count, 2);
  EXPECT_EQ(matches[0].line, "W DeepGemm is enabled but the scale_fmt of checkpoint is not ue8m0.");
}

// The assert alone has many causes; with the FP4 backend in the log, before or after, the race is named too.
TEST(Findings, ASecondLineCanBeAskedFor) {
  const std::string assertion = "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0";
  const std::string backend = "server_args=ServerArgs(fp4_gemm_runner_backend='flashinfer_cutlass')";
  const std::vector<std::string> alone = {assertion};
  const std::vector<std::string> before = {backend, assertion};
  const std::vector<std::string> after = {assertion, backend};
  EXPECT_EQ(ids(match_text(shipped(), alone)), (std::set<std::string>{"probability-tensor-nan"}));
  EXPECT_TRUE(ids(match_text(shipped(), before)).contains("fp4-gemm-pdl-race"));
  EXPECT_TRUE(ids(match_text(shipped(), after)).contains("fp4-gemm-pdl-race"));
}

TEST(Findings, LinesOfAnyLengthAndBytesAreBorne) {
  TextMatcher matcher(shipped());
  matcher.add_line(std::string(20 << 20, 'a'));
  matcher.add_line(std::string(1 << 20, '!'));
  matcher.add_line(std::string("\0\xff\xfe", 3) + " CUDA error: an illegal memory access was encountered " + '\0');
  matcher.add_line("");
  EXPECT_EQ(ids(matcher.matches()), (std::set<std::string>{"router-bias-cancels", "illegal-access-elsewhere"}));
  for (const TextMatch& match : matcher.matches()) EXPECT_LE(match.line.size(), TextMatch::kShownBytes);
  EXPECT_EQ(matcher.lines(), 4);
}

// One of the literals that lines are first searched for must be in every line that the expression matches; joined by / here.
TEST(Pattern, TheLiteralsAreOnlyWhatEveryMatchHas) {
  struct Case {
    std::string regex, literal;
  };
  const Case cases[] = {
      {"no kernel image", "no kernel image"},
      {"(?i)Out Of Memory", "out of memory"},
      {"abc|defgh", "abc/defgh"},
      {"colou?r scheme", "r scheme"},
      {"x(ab|cd)yz", "yz"},
      {"\\bGPU\\b", "gpu"},
      {"a\\.so[\\d.]*: undef", ": undef"},
      {"ab+cd", "ab"},
      {"abc{0,3}d", "ab"},
      {"[abc]def[)(]g", "def"},
      {"abc|\\d+", ""},
      {"(?i)Xid .*: 79,|off the bus", ": 79,/off the bus"},
  };
  for (const Case& one : cases) {
    const Result<Pattern> pattern = Pattern::compile(PatternKind::regex, one.regex);
    ASSERT_TRUE(pattern.ok()) << one.regex;
    EXPECT_EQ(fmt::format("{}", fmt::join(pattern->literals(), "/")), one.literal) << one.regex;
  }
  const Result<Pattern> optional = Pattern::compile(PatternKind::regex, "colou?r");
  EXPECT_TRUE(optional->matches(Line("color")));
  EXPECT_TRUE(optional->matches(Line("colour")));
  const Result<Pattern> literal = Pattern::compile(PatternKind::literal, "Unknown Recipe (a.b");
  EXPECT_TRUE(literal->matches(Line("x UNKNOWN recipe (a.b")));
  EXPECT_FALSE(literal->matches(Line("x unknown recipe (aXb")));
}

TEST(Versions, AreComparedNumberByNumber) {
  struct Case {
    std::string version, range;
    bool within;
  };
  const Case cases[] = {
      {"0.5.10", ">=0.5.4", true},        {"0.5.10", "<0.5.9", false}, {"0.5.4rc1", ">=0.5.4, <0.5.10", true},
      {"v0.6", ">0.5.99, <=0.6.0", true}, {"0.6.0", "==0.6", true},    {"0.5.3+cu130", ">= 0.5.4", false},
  };
  for (const Case& one : cases) {
    const Result<bool> within = version_within(one.version, one.range);
    ASSERT_TRUE(within.ok()) << one.range;
    EXPECT_EQ(*within, one.within) << one.version << " " << one.range;
  }
  for (const char* bad : {"", "0.5", ">=", ">=x", ">=1,", "~1.0", "=>1"}) EXPECT_FALSE(version_within("1", bad).ok()) << bad;
}

constexpr const char* kGood = R"(
id = "x"
title = "t"
confidence = "plausible"
cause = "c"
remedy = "r"
sources = ["https://github.com/a/b/issues/1"]
[applies]
hardware = ["12.x", "h200"]
engines = ["sglang"]
versions = ">=0.5"
traits = ["mtp"]
[[symptoms]]
regex = 'a+b'
example = "xaab"
)";

TEST(FindingFile, ErrorsNameTheFileAndWhatIsWrong) {
  ASSERT_TRUE(parse_finding(kGood, "x.toml").ok()) << parse_finding(kGood, "x.toml").error().message();
  struct Case {
    std::string from, to, expected;
  };
  const Case cases[] = {
      {"id = \"x\"", "id = \"y\"", "id 'y' is not the file's name"},
      {"id = \"x\"", "id = \"X y\"", "lower-case words"},
      {"title = \"t\"", "", "'title'"},
      {"title = \"t\"", "title = \"  \"", "must not be empty"},
      {"\"plausible\"", "\"sure\"", "confirmed, plausible or unknown"},
      {"https://github", "http://github", "no https address"},
      {"\"h200\"", "\"h2000\"", "there is no hardware 'h2000'"},
      {"\"mtp\"", "\"mtpp\"", "there is no trait 'mtpp'"},
      {">=0.5", "0.5", "no condition on a version"},
      {"engines = [\"sglang\"]", "", "exactly one engine"},
      {"regex = 'a+b'", "regex = 'a+(b'", "no regular expression"},
      {"regex = 'a+b'", "regex = 'a*'", "empty line"},
      {"regex = 'a+b'", "regex = 'a+c'", "does not match its example"},
      {"example = \"xaab\"", "", "needs an example"},
      {"regex = 'a+b'", "literal = 'aab'\nlint = 'tensor-twice'", "exactly one of"},
      {"regex = 'a+b'\nexample = \"xaab\"", "lint = 'tensor-twicee'", "knows no finding 'tensor-twicee'"},
      {"regex = 'a+b'", "regexp = 'a+b'", "no such field"},
      {"[[symptoms]]\nregex = 'a+b'\nexample = \"xaab\"", "", "'symptoms'"},
      {"cause = \"c\"", "cause = 3", "expected a string"},
      {"id = \"x\"", "id = ", "x.toml"},
  };
  for (const Case& one : cases) {
    std::string text = kGood;
    ASSERT_NE(text.find(one.from), std::string::npos) << one.from;
    text.replace(text.find(one.from), one.from.size(), one.to);
    const Result<Finding> finding = parse_finding(text, "x.toml");
    ASSERT_FALSE(finding.ok()) << one.to;
    EXPECT_NE(finding.error().what.find(one.expected), std::string::npos) << finding.error().what;
    EXPECT_TRUE(finding.error().what.starts_with("x.toml")) << finding.error().what;
  }
}

TEST(FindingFile, AFolderAddsAndReplaces) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("findings_{}", ::getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "x.toml") << kGood;
  std::string replacing = kGood;
  replacing.replace(replacing.find("\"x\""), 3, "\"no-kernel-image\"");
  std::ofstream(folder / "no-kernel-image.toml") << replacing;
  std::ofstream(folder / "README.md") << "not a finding";
  const Result<std::vector<Finding>> all = load_findings(folder);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_EQ(all->size(), shipped().size() + 1);
  ASSERT_NE(find(*all, "x"), nullptr);
  EXPECT_EQ(find(*all, "no-kernel-image")->title, "t");
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(load_findings(folder).ok());
}

std::set<std::string> matching(const Facts& facts) {
  std::set<std::string> found;
  for (const FactMatch& match : match_facts(shipped(), facts)) found.insert(match.finding->id);
  return found;
}

TEST(Facts, OfTheStorysMachineNameItsFailures) {
  const Facts story = {.hardware = {"12.0", "rtx-pro-6000"},
                       .model = "glm_moe_dsa",
                       .formats = {"nvfp4", "bf16"},
                       .traits = {"several-gpus", "pcie", "sparse-attention"},
                       .lint = std::vector<std::string>{"shared-expert-unquantised"}};
  const std::set<std::string> found = matching(story);
  for (const char* id : {"fp4-gemm-pdl-race", "ue8m0-scales-misread", "deepgemm-unsupported-architecture", "shared-expert-fusion-shape",
                         "acs-redirect-deadlock", "kv-type-overridden"})
    EXPECT_TRUE(found.contains(id)) << id;
  // Another GPU, another model, a checkpoint that lint has cleared, nothing drafted.
  for (const char* id :
       {"gb10-native-fp4-moe", "kimi-call-ids-rewritten", "tensor-in-two-shards", "draft-kv-uninitialised", "router-bias-cancels"})
    EXPECT_FALSE(found.contains(id)) << id;
  EXPECT_EQ(match_facts(shipped(), story).front().finding->id, "shared-expert-fusion-shape") << "what lint saw comes first";
}

TEST(Facts, WhatIsUnknownExcludesNothingAndTheEngineDoes) {
  Facts facts = {.hardware = {"12.0"}, .formats = {"nvfp4"}};
  EXPECT_TRUE(matching(facts).contains("deepgemm-unsupported-architecture"));
  facts.engine = "vllm";
  EXPECT_FALSE(matching(facts).contains("kv-type-overridden"));
  facts.engine = "sglang";
  EXPECT_TRUE(matching(facts).contains("kv-type-overridden"));
  EXPECT_TRUE(matching({}).empty()) << "nothing is known";
  EXPECT_TRUE(matching({.formats = {"nvfp4"}}).empty()) << "a format alone says too little";
}

TEST(Facts, AVersionOutsideTheRangeExcludes) {
  const Result<Finding> finding = parse_finding(kGood, "x.toml");
  ASSERT_TRUE(finding.ok());
  const std::vector<Finding> one = {*finding};
  Facts facts = {.hardware = {"12.1"}, .engine = "sglang", .version = "0.5.3", .traits = {"mtp"}};
  EXPECT_EQ(match_facts(one, facts).size(), 1u);
  facts.version = "0.4.9";
  EXPECT_TRUE(match_facts(one, facts).empty());
  facts.version = "0.5.3";
  facts.traits = {};
  EXPECT_TRUE(match_facts(one, facts).empty()) << "no drafts here";
}

TEST(Search, WordsFindWhatSpeaksOfThem) {
  struct Case {
    std::string words, expected;
  };
  const Case cases[] = {
      {"second answer gibberish with fp8 cache prefix", "fp8-kv-prefix-gibberish"},
      {"illegal instruction on a CPU without AVX-512", "illegal-cpu-instruction"},
      {"ACS all-reduce hang", "acs-redirect-deadlock"},
      {"rope_theta default transformers 5", "rope-theta-moved"},
      {"tool call without arguments lost", "zero-argument-call-lost"},
  };
  for (const Case& one : cases) {
    const std::vector<WordMatch> found = search_words(shipped(), one.words);
    ASSERT_FALSE(found.empty()) << one.words;
    EXPECT_EQ(found.front().finding->id, one.expected) << one.words;
  }
  EXPECT_TRUE(search_words(shipped(), "zzzz qqqq").empty());
}

}  // namespace
}  // namespace reckoner::findings
