// reckoner trace and replay as people use them, and what `run` does by itself with a bad step.
#include "cli_support.h"

namespace reckoner {
namespace {

class TraceCliTest : public testing::Test {
 protected:
  TraceCliTest() { fs::create_directories(folder); }
  ~TraceCliTest() override { fs::remove_all(folder); }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  // The only file in a folder of bundles.
  std::string only_file(const fs::path& in) const {
    std::vector<std::string> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(in)) files.push_back(entry.path().string());
    EXPECT_EQ(files.size(), 1u) << in;
    return files.empty() ? "" : files.front();
  }
  static std::string content(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const fs::path folder = fs::temp_directory_path() / ("reckoner_trace_cli_" + std::to_string(getpid()));
};

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "wanted '" << part << "' in: " << text;
}

TEST_F(TraceCliTest, AHealthyModelAndItsReports) {
  const ProgramRun run = run_program({"trace", kModel, "Define lantern.", "--decode", "2", "--html", path("trace.html"), "--json",
                                      path("trace.json"), "--trace-dir", path("bundles")});
  EXPECT_EQ(run.status, 0) << run.err;
  expect_parts(run.out, {"layer 2", "attention: linear o_proj", "routers", "all values are finite"});
  EXPECT_TRUE(fs::is_empty(path("bundles")));
  const JsonDocument report = parsed(content(path("trace.json")));
  EXPECT_EQ(number_at(report, {"steps"}), 3);
  EXPECT_EQ(list_at(report, {"generated"}).size(), 2u);
  EXPECT_TRUE(at(report, {"compared_exact"}).as_bool().value());
  const std::string html = content(path("trace.html"));
  expect_parts(html, {"<!doctype html>", "layer 3, experts: linear_experts down_proj", "error to exact"});
}

TEST_F(TraceCliTest, AgainstAReferenceAndAgainstItself) {
  const std::string model = "tests/golden/glm_moe_dsa";
  const ProgramRun golden = run_program({"trace", model, "--precision", "exact", "--against", model + "/reference.safetensors"});
  EXPECT_EQ(golden.status, 0) << golden.out << golden.err;
  expect_parts(golden.out, {"hidden.4", "6 tensors agree with the dump"});
  const std::vector<std::string> fast = {"trace", model, "--tokens", "5,17,3,99,4", "--decode", "0", "--precision", "fast"};
  std::vector<std::string> save = fast;
  save.insert(save.end(), {"--save", path("mine.safetensors")});
  EXPECT_EQ(run_program(save).status, 0);
  const ProgramRun again = run_program({"trace", model, "--precision", "fast", "--against", path("mine.safetensors")});
  EXPECT_EQ(again.status, 0) << again.out << again.err;
  // Another model of the same shapes is another model: it says where that begins.
  const ProgramRun other =
      run_program({"trace", "tests/golden/deepseek_v32", "--precision", "exact", "--against", path("mine.safetensors")});
  EXPECT_EQ(other.status, 1) << other.out << other.err;
  expect_parts(other.out, {"DIVERGES: first at "});
  expect_error({"trace", model, "--against", model + "/model.safetensors"}, 1, {"input_ids"});
  expect_error({"trace", model, "--tokens", "5,x"}, 1, {"--tokens", "'5,x'"});
}

TEST_F(TraceCliTest, AnInjectedNaNIsFoundAndItsBundleReplayed) {
  const ProgramRun run = run_program({"trace", kModel, "Define lantern.", "--inject-nan", "5:1.attention", "--trace-dir", path("bundles")});
  EXPECT_EQ(run.status, 1);
  expect_parts(run.out, {"NOT FINITE: step 0, layer 1, post_attention_norm: rms_norm, add row 5 (position 5)", "something else wrote there",
                         "bundle: "});
  const std::string bundle = only_file(path("bundles"));
  const ProgramRun replayed = run_program({"replay", bundle, "--device", "cpu"});
  EXPECT_EQ(replayed.status, 0) << replayed.err;
  expect_parts(replayed.out, {"rms_norm.reference", "every kernel agrees: what the op reads is bad already (add: 1 of "});
  const JsonDocument json = parsed(run_program({"replay", bundle, "--device", "cpu", "--json"}).out);
  EXPECT_EQ(text_at(json, {"about", "cause"}), "overwritten");
  EXPECT_TRUE(list_at(json, {"wrong"}).empty());
  expect_error({"replay", "tests/golden/glm_moe_dsa/reference.safetensors"}, 1, {"no bundle"});
}

TEST_F(TraceCliTest, RunLooksIntoABadStepByItself) {
  const std::vector<std::string> ask_broken = ask({"Define lantern.", "--inject-nan", "5:1.attention", "--admission", "off"});
  std::vector<std::string> with_dir = ask_broken;
  with_dir.insert(with_dir.end(), {"--trace-dir", path("bundles")});
  const ProgramRun run = run_program(with_dir);
  EXPECT_EQ(run.status, 1);
  expect_parts(run.err, {"reckoner: origin: step 0, layer 1, post_attention_norm: rms_norm", "reckoner: bundle: ", "reckoner: error: "});
  EXPECT_NE(only_file(path("bundles")), "");
  std::vector<std::string> without = ask_broken;
  without.insert(without.end(), {"--trace-dir", "off"});
  EXPECT_EQ(run_program(without).err.find("origin"), std::string::npos);
}

// A GPU's kernel is wrong: the run says which, and replay says so again.
TEST_F(TraceCliTest, AWrongKernelOfADeviceIsNamed) {
  const std::string fake = "FAKE_GPU_BROKEN='rms_norm nan' RECKONER_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY " \"$RECKONER\" ";
  const ProgramRun run = run_shell(fake + "run models/pocket --device cuda --no-think --context 200 --admission off --trace-dir " +
                                   path("bundles") + " 'Define lantern.'");
  EXPECT_NE(run.status, 0);
  expect_parts(run.err, {"reckoner: origin: step 0, layer 0, input_norm: rms_norm", "rms_norm.broken is wrong"});
  const ProgramRun replayed = run_shell(fake + "replay --device cuda " + only_file(path("bundles")));
  EXPECT_EQ(replayed.status, 1) << replayed.err;
  expect_parts(replayed.out, {"rms_norm.broken is wrong", "cuda:0", "WRONG"});
}

}  // namespace
}  // namespace reckoner
