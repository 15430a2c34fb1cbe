// --tp: ranks on the processor and on fake GPUs (tests/device).
#include <cstdlib>

#include "cli_support.h"
#include "client.h"
#include "running_server.h"

namespace reckoner {
namespace {

ProgramRun on_fakes(const std::string& arguments, int gpus) {
  return run_shell("FAKE_GPU_COUNT=" + std::to_string(gpus) + " RECKONER_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY " \"$RECKONER\" " + arguments);
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "wanted '" << part << "' in: " << text;
}

TEST(TensorParallel, RanksOnTheProcessorAnswer) {
  for (const char* precision : {"exact", "fast"}) {
    const ProgramRun run = run_program({"run", kModel, "--no-think", "--json", "--device", "cpu", "--tp", "2", "--threads", "2",
                                        "--precision", precision, "--admission", "off", "Define lantern."});
    ASSERT_EQ(run.status, 0) << run.err;
    const JsonDocument json = parsed(run.out);
    EXPECT_EQ(text_at(json, {"text"}), kLantern);
    EXPECT_EQ(text_at(json, {"device"}), "cpu");
    expect_parts(run.out, {"\"ranks\":2"});
    expect_parts(run.err, {"2 ranks of "});
  }
}

TEST(TensorParallel, AdmissionTriesTheShapesOfARank) {
  const ProgramRun run =
      run_program({"run", kModel, "--no-think", "--verbose", "--device", "cpu", "--tp", "4", "--context", "200", "Define lantern."});
  EXPECT_EQ(run.out, std::string(kLantern) + "\n") << run.err;
  expect_parts(run.err, {"ranks", "--tp; each has a part of every layer", "weights a rank", "kernels match their references"});
}

TEST(TensorParallel, WhatCannotBeDividedIsAnErrorThatSaysWhatCan) {
  const ProgramRun run = run_program({"run", kModel, "--device", "cpu", "--tp", "3", "hello"});
  EXPECT_EQ(run.status, 1);
  expect_parts(run.err, {"--tp 3: model.layers.0.self_attn.q_b_proj: 8 attention heads cannot be divided among 3 ranks",
                         "numbers of ranks that can divide this model: 2, 4, 8"});
  expect_error({"run", kModel, "--tp", "0", "hello"}, 2, {"expected a whole number from 1 to 64, found '0'"});
}

TEST(TensorParallel, AGpuForEachRank) {
  const ProgramRun run = on_fakes("run models/pocket --no-think --json --tp 2 --context 200 --admission off 'Define lantern.'", 2);
  ASSERT_EQ(run.status, 0) << run.err;
  const JsonDocument json = parsed(run.out);
  EXPECT_EQ(text_at(json, {"text"}), kLantern);
  EXPECT_EQ(text_at(json, {"device"}), "cuda:0, cuda:1");
  expect_parts(run.err, {"a fake of NCCL connects cuda:0, cuda:1", "2 ranks of "});
  const ProgramRun later = on_fakes(
      "verify tests/golden/kimi_k2 --device cuda:1 --tp 2 --reference tests/golden/kimi_k2/reference.safetensors --admission off", 3);
  EXPECT_EQ(later.status, 0) << later.out << later.err;
  expect_parts(later.err, {"on cuda:1, cuda:2 (Fake GPU", "steps recorded as CUDA graphs"});
}

TEST(TensorParallel, MoreRanksThanGpusIsAnError) {
  const ProgramRun two = on_fakes("run models/pocket --device cuda --tp 4 hello", 2);
  EXPECT_EQ(two.status, 1);
  expect_parts(two.err, {"--tp 4: 4 ranks need 4 GPUs, here are 2", "here are cuda:0 (Fake GPU), cuda:1 (Fake GPU)"});
  const ProgramRun behind = on_fakes("run models/pocket --device cuda:1 --tp 2 hello", 2);
  EXPECT_EQ(behind.status, 1);
  expect_parts(behind.err, {"2 ranks need 2 GPUs, here is 1 from cuda:1 on"});
  const ProgramRun processor = on_fakes("run models/pocket --no-think --verbose --context 200 --admission off --tp 2 'Define lantern.'", 1);
  EXPECT_EQ(processor.out, std::string(kLantern) + "\n") << processor.err;
  expect_parts(processor.err, {"auto: --tp 2: 2 ranks need 2 GPUs, here is 1"});
}

TEST(TensorParallel, AServerSaysWhatItsRanksHave) {
  const RunningServer server({"--device", "cpu", "--tp", "2", "--context", "200", "--admission", "off"});
  Client client(server.port());
  const ClientResponse info = client.get("/server_info");
  EXPECT_EQ(info.status, 200);
  expect_parts(info.body, {"\"ranks\"", "\"weights a rank\""});
  const std::string body = R"({"prompt": "Define lantern.", "max_tokens": 5, "temperature": 0})";
  EXPECT_EQ(Client(server.port()).post("/v1/completions", body).status, 200);
}

// One of two GPUs fails: requests end with its name and reason, and the process lives.
TEST(TensorParallel, AServerSaysWhichGpuFailed) {
  setenv("RECKONER_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);
  setenv("FAKE_GPU_STEPS", "7", 1);
  setenv("FAKE_GPU_COUNT", "2", 1);
  const RunningServer server({"--device", "cuda", "--tp", "2", "--context", "200", "--admission", "off"});
  for (const char* name : {"RECKONER_CUDA_LIBRARY", "FAKE_GPU_STEPS", "FAKE_GPU_COUNT"}) unsetenv(name);
  const std::string body = R"({"prompt": "Define lantern.", "max_tokens": 20, "temperature": 0})";
  for (int request = 0; request < 2; ++request) {
    const ClientResponse failed = Client(server.port()).post("/v1/completions", body);
    EXPECT_EQ(failed.status, 500) << failed.body;
    expect_parts(failed.body, {"the device failed", "on cuda:", "illegal memory access"});
  }
  EXPECT_EQ(Client(server.port()).get("/health").status, 503);
}

}  // namespace
}  // namespace reckoner
