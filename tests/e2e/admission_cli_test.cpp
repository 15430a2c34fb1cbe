// --admission, with a fake GPU one of whose kernels is broken (tests/device).
#include <cstdlib>

#include "cli_support.h"
#include "client.h"
#include "running_server.h"

namespace reckoner {
namespace {

// A cache of its own for each test.
class AdmissionTest : public testing::Test {
 protected:
  AdmissionTest() { fs::create_directories(cache); }
  ~AdmissionTest() override { fs::remove_all(cache); }
  ProgramRun on_processor(const std::string& arguments) const {
    return run_shell("XDG_CACHE_HOME=" + cache.string() + " \"$RECKONER\" " + arguments);
  }
  ProgramRun on_fake(const std::string& broken, const std::string& arguments) const {
    return run_shell("XDG_CACHE_HOME=" + cache.string() + " FAKE_GPU_BROKEN='" + broken +
                     "' RECKONER_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY " \"$RECKONER\" " + arguments);
  }
  std::string ask_fake(const std::string& broken) const {
    const ProgramRun run = on_fake(broken, kAsk);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, std::string(kLantern) + "\n") << "the next candidate serves";
    return run.err;
  }

  static constexpr const char* kAsk = "run models/pocket --device cuda --no-think --context 200 --admission-limit 2 'Define lantern.'";
  const fs::path cache = fs::temp_directory_path() / ("reckoner_admission_" + std::to_string(getpid()));
};

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "wanted '" << part << "' in: " << text;
}

TEST_F(AdmissionTest, EveryBrokenKernelIsRefusedByNameAndTheNextServes) {
  const std::string serves = "; rms_norm.fake serves";
  expect_parts(ask_fake("rms_norm wrong"), {"reckoner: rms_norm.broken refused: ", "row ", serves});
  expect_parts(ask_fake("rms_norm nan"), {"rms_norm.broken refused: NaN of finite inputs, ", serves});
  expect_parts(ask_fake("rms_norm past"), {"rms_norm.broken refused: wrote outside of its outputs", serves});
  expect_parts(ask_fake("rms_norm crash"), {"rms_norm.broken refused: crashed (signal 6: Aborted)", serves});
  expect_parts(ask_fake("rms_norm hang"), {"rms_norm.broken refused: did not end within 2 s", serves});
  expect_parts(ask_fake("linear wrong"), {"linear.broken (", "fast) refused: ", "; linear.fake serves"});
  EXPECT_EQ(ask_fake("rms_norm well").find("refused"), std::string::npos);
}

TEST_F(AdmissionTest, WithoutItTheBrokenKernelServes) {
  const ProgramRun run = on_fake("rms_norm nan", std::string(kAsk) + " --admission off --verbose");
  EXPECT_NE(run.out, std::string(kLantern) + "\n");
  expect_parts(run.err, {"admission", "off", "kernels serve as they are"});
}

TEST_F(AdmissionTest, WhatPassedIsRememberedUntilAskedAgain) {
  const std::string ask = "run models/pocket --device cpu --no-think --verbose 'Define lantern.'";
  expect_parts(on_processor(ask).err, {"kernels match their references", "0 of them in an earlier start"});
  const std::string second = on_processor(ask).err;
  EXPECT_EQ(second.find("; 0 of them"), std::string::npos) << second;
  expect_parts(on_processor(ask + " --admission again").err, {"; 0 of them in an earlier start"});
  for (const fs::directory_entry& file : fs::directory_iterator(cache / "reckoner" / "admission")) std::ofstream(file.path()) << "{";
  const ProgramRun broken = on_processor(ask);
  EXPECT_EQ(broken.status, 0);
  expect_parts(broken.err, {"what kernels passed before is not readable", "; 0 of them in an earlier start"});
}

TEST_F(AdmissionTest, AServerSaysWhatWasRefused) {
  setenv("RECKONER_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);
  setenv("FAKE_GPU_BROKEN", "route wrong", 1);
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  const RunningServer server({"--device", "cuda", "--context", "200"});
  for (const char* name : {"RECKONER_CUDA_LIBRARY", "FAKE_GPU_BROKEN", "XDG_CACHE_HOME"}) unsetenv(name);
  expect_parts(Client(server.port()).get("/server_info").body, {"route.broken refused: ", "; route.fake serves"});
}

TEST_F(AdmissionTest, KernelsShowsIt) {
  const ProgramRun good = on_processor("kernels --admit --model models/pocket");
  EXPECT_EQ(good.status, 0) << good.err;
  expect_parts(good.out, {"admission", "passed, exactly", "passed, 0."});
  const ProgramRun broken = on_fake("route wrong", "kernels --admit --hardware cuda");
  EXPECT_EQ(broken.status, 0) << broken.err;
  expect_parts(broken.out, {"not route.broken: ", "route.fake"});
  const ProgramRun described = on_fake("", "kernels --admit --hardware h200");
  EXPECT_EQ(described.status, 1);
  expect_parts(described.err, {"--admit runs kernels, and h200 is only described"});
}

}  // namespace
}  // namespace reckoner
