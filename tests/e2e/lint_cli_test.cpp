// reckoner lint as a program, and what its findings mean for `reckoner run`.
#include "cli_support.h"
#include "support/model_copy.h"

namespace reckoner {
namespace {

constexpr const char* kInputScale = "model.layers.2.mlp.experts.5.down_proj.input_scale";

void drop_input_scale(const ModelCopy& m) {
  m.drop_tensor(kShard2, kInputScale);
  m.replace(kIndex, std::string("  \"") + kInputScale + "\": \"model-00002-of-00003.safetensors\",\n", "");
}

std::vector<std::string> ask_of(const ModelCopy& model, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"run", model.path().string(), "--no-think", "Define lantern."});
  return more;
}

TEST(LintProgram, CleanModelHasStatusZeroAndAVerdict) {
  const ProgramRun run = run_program({"lint", kModel});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_NE(run.out.find("\nnotes\n"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("0 errors, 0 warnings, 6 notes: nothing wrong was found\n"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("vllm#41108"), std::string::npos);
  for (std::size_t at = 0, end = 0; (end = run.out.find('\n', at)) != std::string::npos; at = end + 1)
    EXPECT_LE(end - at, 100u) << run.out.substr(at, end - at);
}

TEST(LintProgram, ManyEqualFindingsAreFolded) {
  const ModelCopy model(Base::pocket);
  for (const char* file : {"config.json", "hf_quant_config.json"}) {
    for (const char* layer : {"1", "2", "3"})
      model.replace(file, std::string("\"model.layers.") + layer + ".mlp.shared_experts*\"", "\"lm_head\"");
  }
  const ProgramRun run = run_program({"lint", model.path().string()});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.out.find("9 times in 3 layers, first: "), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("9 warnings"), std::string::npos) << run.out;
}

TEST(LintProgram, JsonHasItsFields) {
  const ModelCopy model(Base::pocket);
  drop_input_scale(model);
  const ProgramRun run = run_program({"lint", model.path().string(), "--json"});
  EXPECT_EQ(run.status, 1);
  const JsonDocument report = parsed(run.out);
  EXPECT_EQ(number_at(report, {"errors"}), 1);
  EXPECT_EQ(number_at(report, {"warnings"}), 0);
  EXPECT_EQ(at(report, {"clean"}).as_bool().value(), false);
  const JsonNode first = list_at(report, {"findings"}).front();
  EXPECT_EQ(first.required("id")->as_string().value(), "input-scale-missing");
  EXPECT_EQ(first.required("severity")->as_string().value(), "error");
  for (const char* key : {"title", "why", "reckoner", "others"}) EXPECT_NE(first.required(key)->as_string().value(), "");
  EXPECT_EQ(first.required("count")->as_int64(0, 100).value(), 1);
  const std::vector<JsonNode> places = first.required("places")->as_array().value();
  EXPECT_EQ(places.at(0).required("layer")->as_int64(0, 100).value(), 2);
  EXPECT_EQ(places.at(0).required("expert")->as_int64(0, 100).value(), 5);
}

TEST(LintProgram, WhatIsNoModelHasStatusTwo) {
  expect_error({"lint", "no/such/folder"}, 2, {"no/such/folder"});
  expect_error({"lint", "tests/e2e"}, 2, {"no model"});
  EXPECT_EQ(run_program({"lint", "tests/golden/glm4_moe"}).status, 0);
}

TEST(LintAtLoad, ErrorsRefuseUnlessAccepted) {
  const ModelCopy model(Base::pocket);
  drop_input_scale(model);
  expect_error(ask_of(model), 1, {"input-scale-missing", "layer 2, expert 5", "--accept input-scale-missing", "reckoner lint"});
  const ProgramRun accepted = run_program(ask_of(model, {"--accept", "input-scale-missing"}));
  EXPECT_EQ(accepted.status, 0) << accepted.err;
  EXPECT_EQ(accepted.out, std::string(kLantern) + "\n");
  EXPECT_NE(accepted.err.find("reckoner: error: input-scale-missing"), std::string::npos) << accepted.err;
  expect_error(ask_of(model, {"--accept", "input-scale-missin"}), 1,
               {"there is no finding 'input-scale-missin'", "did you mean input-scale-missing?"});
  EXPECT_EQ(run_program({"inspect", model.path().string()}).status, 0);
}

TEST(LintAtLoad, AnInputScaleOfZeroIsRefused) {
  const ModelCopy model(Base::pocket);
  model.set_f32(kShard2, kInputScale, 0, 0.0f);
  expect_error(ask_of(model), 1, {"input-scale-invalid", kInputScale, "found 0"});
}

TEST(LintAtLoad, WarningsAreOneLineEachOnStderr) {
  const ModelCopy model(Base::pocket);
  model.set_f32(kShard2, "model.layers.2.mlp.experts.5.gate_proj.weight_scale_2", 0, 0.01f);
  const ProgramRun run = run_program(ask_of(model, {"--max-tokens", "2"}));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("reckoner: warning: gate-up-scales-differ: "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("`reckoner lint " + model.path().string() + "` says more"), std::string::npos) << run.err;
  EXPECT_EQ(run_program(ask_of(model, {"--max-tokens", "2", "--quiet"})).err, "");
  EXPECT_EQ(run_program({"inspect", kModel}).err, "");
}

// What loading itself refuses is told in its own words, as ever.
TEST(LintAtLoad, ErrorsOfTheLoaderComeFirst) {
  const ModelCopy model(Base::pocket);
  model.resize(kShard2, -4096);
  const ProgramRun run = run_program(ask_of(model));
  EXPECT_EQ(run.status, 1);
  EXPECT_TRUE(run.err.starts_with("reckoner: error: " + (model.path() / kShard2).string() + ": truncated: ")) << run.err;
}

}  // namespace
}  // namespace reckoner
