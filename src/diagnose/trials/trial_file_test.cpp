#include "diagnose/trials/trial_file.h"

#include <gtest/gtest.h>

namespace reckoner::trials {
namespace {

constexpr const char* kGood = R"(
name = "glm"
goal = "serve it"
[target]
command = ["python3", "-m", "server", "--port", "{port}", "{moe}", "--kv={kv}", "a{{b}}c"]
environment = { MOE = "{moe}", PLAIN = "x", KV = "type {kv}" }
directory = "sub"
port = 8000
[limits]
start_s = 12.5
max_starts = 7
[[factor]]
name = "moe"
about = "expert kernels"
effective = "moe_backend"
values = ["auto", { name = "cutlass", arguments = ["--moe", "cutlass"] }, { name = "none", arguments = [] }]
baseline = "cutlass"
[[factor]]
name = "kv"
values = ["bf16", "fp8"]
[fixed]
fp4 = "auto"
[[exclude]]
moe = "none"
kv = "fp8"
[[configuration]]
kv = "fp8"
[[probe]]
kind = "expect"
prompt = "2 + 2"
answer = '4|four'
request = { top_k = 1 }
[[effective]]
key = "moe_backend"
log = 'backend is (\w+)'
[[effective]]
key = "kv"
endpoint = "/server_info"
field = "kv.type"
[[pattern]]
name = "scale"
log = 'not ue8m0'
[[pattern]]
name = "mine"
log = 'boom \d+'
outcome = "crash"
)";

TrialFile good() { return parse_trial_file(kGood, "glm.toml", "/base").value(); }

TEST(TrialFile, ReadsEverything) {
  const TrialFile file = good();
  EXPECT_EQ(file.goal, "serve it");
  EXPECT_EQ(file.strategy, Strategy::isolate);
  EXPECT_EQ(file.target.directory, "/base/sub");
  EXPECT_EQ(file.target.port, 8000);
  EXPECT_EQ(file.limits.start_s, 12.5);
  EXPECT_EQ(file.limits.max_starts, 7);
  ASSERT_EQ(file.factors.size(), 2U);
  EXPECT_EQ(file.factors[0].factor, (Factor{.name = "moe",
                                            .about = "expert kernels",
                                            .effective_key = "moe_backend",
                                            .values = {"auto", "cutlass", "none"},
                                            .baseline = "cutlass"}));
  EXPECT_EQ(file.factors[1].factor.effective_key, "kv");
  EXPECT_EQ(file.factors[1].factor.baseline, "bf16");
  EXPECT_EQ(file.fixed, (Settings{{"fp4", "auto"}}));
  EXPECT_EQ(file.excluded, (std::vector<std::vector<int>>{{2, 1}}));
  EXPECT_EQ(file.listed, (std::vector<std::vector<int>>{{1, 1}}));
  ASSERT_EQ(file.probes.size(), 1U);
  EXPECT_EQ(file.probes[0].kind, ProbeKind::expect);
  EXPECT_EQ(file.probes[0].extra, "{\"top_k\":1}");
  ASSERT_EQ(file.effective.size(), 2U);
  EXPECT_EQ(file.effective[1].field, "kv.type");
  ASSERT_EQ(file.patterns.size(), 2U);
  EXPECT_FALSE(file.patterns[0].outcome.has_value());
  EXPECT_EQ(file.patterns[1].outcome, Outcome::crash);
}

TEST(TrialFile, PlaceholdersBecomeWords) {
  const TrialFile file = good();
  const std::vector<std::string> head = {"python3", "-m", "server", "--port", "81"};
  const auto with = [&](std::vector<std::string> rest) {
    std::vector<std::string> words = head;
    words.insert(words.end(), rest.begin(), rest.end());
    return words;
  };
  EXPECT_EQ(command_for(file, {.values = {1, 1}, .port = 81}), with({"--moe", "cutlass", "--kv=fp8", "a{b}c"}));
  EXPECT_EQ(command_for(file, {.values = {2, 0}, .port = 81}), with({"--kv=bf16", "a{b}c"}));
  EXPECT_EQ(command_for(file, {.values = {0, 0}, .port = 81}), with({"auto", "--kv=bf16", "a{b}c"}));
  // A variable whose placeholder has no arguments is left out. TOML tables are sorted by key.
  using Variables = std::vector<std::pair<std::string, std::optional<std::string>>>;
  EXPECT_EQ(environment_for(file, {.values = {2, 1}, .port = 81}), (Variables{{"KV", "type fp8"}, {"MOE", std::nullopt}, {"PLAIN", "x"}}));
}

TEST(TrialFile, SettingsReadBack) {
  const TrialFile file = good();
  for (const std::vector<int>& values : {std::vector<int>{0, 1}, {2, 0}}) {
    EXPECT_EQ(values_of(file, settings_of(file, values)).value(), values);
  }
  EXPECT_FALSE(values_of(file, {{"moe", "auto"}, {"kv", "int8"}}).ok());
  EXPECT_FALSE(values_of(file, {{"moe", "auto"}}).ok());
}

// Each mistake is one change of the good file; the error names the field and what is wrong there.
TEST(TrialFile, ErrorsNameTheField) {
  struct Case {
    const char* from;
    const char* to;
    const char* field;
    const char* part;
  };
  const Case cases[] = {
      {"name = \"glm\"", "", "name", "missing"},
      {"name = \"glm\"", "name = \"a/b\"", "name", "letters"},
      {"goal = ", "gaol = ", "gaol", "no such field"},
      {"start_s = 12.5", "start_s = 0", "limits.start_s", "above 0"},
      {"start_s = 12.5", "starts_s = 1", "limits.starts_s", "no such field"},
      {"max_starts = 7", "max_starts = 0", "limits.max_starts", "0"},
      {"\"{moe}\", ", "\"{mo}\", ", "target.command[5]", "'{mo}' is no factor"},
      {"\"{moe}\", ", "\"x{moe}\", ", "target.command[5]", "is part of a word"},
      {"\"{moe}\", ", "\"{moe\", ", "target.command[5]", "without '}'"},
      {"port = 8000", "port = 80000", "target.port", "80000"},
      {"values = [\"bf16\", \"fp8\"]", "values = [\"bf16\"]", "factor[1].values", "two values"},
      {"values = [\"bf16\", \"fp8\"]", "values = [\"fp8\", \"fp8\"]", "factor[1].values[1]", "twice"},
      {"values = [\"bf16\", \"fp8\"]", "values = [\"fp8\", 8]", "factor[1].values[1]", "number 8"},
      {"baseline = \"cutlass\"", "baseline = \"cudnn\"", "factor[0].baseline", "no value of the factor 'moe'"},
      {"name = \"kv\"", "name = \"moe\"", "factor[1]", "twice"},
      {"name = \"kv\"", "name = \"port\"", "factor[1].name", "not 'port'"},
      {"[[exclude]]\nmoe = \"none\"", "[[exclude]]\nnope = \"none\"", "exclude[0].nope", "no such factor"},
      {"[[exclude]]\nmoe = \"none\"\nkv = \"fp8\"", "[[exclude]]", "exclude[0]", "exclude everything"},
      {"kind = \"expect\"", "kind = \"expected\"", "probe[0].kind", "no kind of probe"},
      {"answer = '4|four'", "answer = '4|(four'", "probe[0].answer", "no regular expression"},
      {"answer = '4|four'", "", "probe[0]", "needs 'answer'"},
      {"log = 'backend is (\\w+)'", "log = 'backend is'", "effective[0]", "no group"},
      {"field = \"kv.type\"", "", "effective[1]", "'endpoint' with 'field'"},
      {"outcome = \"crash\"", "outcome = \"pass\"", "pattern[1].outcome", "no outcome of a failure"},
      {"name = \"glm\"", "name = \"glm\"\nstrategy = \"random\"", "strategy", "isolate"},
  };
  for (const Case& one : cases) {
    std::string text = kGood;
    const std::size_t at = text.find(one.from);
    ASSERT_NE(at, std::string::npos) << one.from;
    text.replace(at, std::string(one.from).size(), one.to);
    const Result<TrialFile> file = parse_trial_file(text, "glm.toml", "/base");
    ASSERT_FALSE(file.ok()) << one.to;
    const std::string message = file.error().message();
    EXPECT_NE(message.find("glm.toml"), std::string::npos) << message;
    EXPECT_NE(message.find(one.field), std::string::npos) << message;
    EXPECT_NE(message.find(one.part), std::string::npos) << message;
  }
}

TEST(TrialFile, BadTomlHasLineAndColumn) {
  const Result<TrialFile> file = parse_trial_file("name = \n", "x.toml", "/");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().what.find("x.toml: line 1"), std::string::npos);
}

}  // namespace
}  // namespace reckoner::trials
