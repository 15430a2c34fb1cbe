// --device, with a library that fakes a GPU (tests/device), and without any.
#include <cstdlib>

#include "cli_support.h"
#include "client.h"
#include "running_server.h"

namespace reckoner {
namespace {

// The program with the fake GPU; `memory_mb` of memory.
ProgramRun on_fake(const std::string& arguments, int memory_mb = 4096) {
  return run_shell("FAKE_GPU_MB=" + std::to_string(memory_mb) + " RECKONER_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY " \"$RECKONER\" " + arguments);
}
ProgramRun without_library(const std::string& arguments) {
  return run_shell("RECKONER_CUDA_LIBRARY=no/such/cuda.so \"$RECKONER\" " + arguments);
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "wanted '" << part << "' in: " << text;
}

TEST(Device, AutoTakesTheGpuAndSaysSo) {
  const ProgramRun run = on_fake("run models/pocket --no-think --json --context 200 'Define lantern.'");
  ASSERT_EQ(run.status, 0) << run.err;
  const JsonDocument json = parsed(run.out);
  EXPECT_EQ(text_at(json, {"text"}), kLantern);
  EXPECT_EQ(text_at(json, {"device"}), "cuda:0");
  EXPECT_EQ(text_at(json, {"kernels", "set"}), "cuda");
  const ProgramRun verbose = on_fake("run models/pocket --no-think --verbose --context 200 --cuda-graphs off 'Define lantern.'");
  expect_parts(verbose.err, {"cuda:0", "Fake GPU, 4.29 GB of memory, compute capability 9.0; auto: the model fits", "CUDA graphs"});
  EXPECT_EQ(verbose.out, std::string(kLantern) + "\n");
}

TEST(Device, AutoTakesTheProcessorAndSaysWhy) {
  const ProgramRun none = without_library("run models/pocket --no-think --verbose 'Define lantern.'");
  EXPECT_EQ(none.out, std::string(kLantern) + "\n");
  expect_parts(none.err, {"cpu", "auto: RECKONER_CUDA_LIBRARY: no/such/cuda.so"});
  const ProgramRun small = on_fake("run models/pocket --no-think --verbose 'Define lantern.'", 2);
  EXPECT_EQ(small.out, std::string(kLantern) + "\n");
  expect_parts(small.err, {"auto: the model needs", "of Fake GPU are free"});
}

TEST(Device, AskingForAGpuThatIsNotThereIsAnError) {
  const ProgramRun none = without_library("run models/pocket --device cuda hello");
  EXPECT_EQ(none.status, 1);
  expect_parts(none.err, {"--device cuda: RECKONER_CUDA_LIBRARY: no/such/cuda.so", "what to do"});
  const ProgramRun other = on_fake("run models/pocket --device cuda:3 hello");
  EXPECT_EQ(other.status, 1);
  expect_parts(other.err, {"--device cuda:3: there is no such GPU", "cuda:0 (Fake GPU)"});
  const ProgramRun small = on_fake("verify models/pocket --device cuda --reference tests/data/pocket-golden.safetensors", 2);
  EXPECT_EQ(small.status, 1);
  expect_parts(small.err, {"--device cuda: the model needs", "of Fake GPU are free", "--device cpu"});
  expect_error({"run", kModel, "--device", "gpu", "hello"}, 2, {"expected auto, cpu, cuda or cuda:N, found 'gpu'"});
}

TEST(Device, VerifyRunsOnIt) {
  const ProgramRun run = on_fake("verify tests/golden/glm4_moe --device cuda --reference tests/golden/glm4_moe/reference.safetensors");
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  expect_parts(run.out, {"verify: PASS"});
  expect_parts(run.err, {"on cuda:0 (Fake GPU", "steps recorded as CUDA graphs"});
}

// A server whose GPU does some steps and then fails.
TEST(Device, AServerSaysThatItsGpuFailed) {
  setenv("RECKONER_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);
  setenv("FAKE_GPU_STEPS", "3", 1);
  const RunningServer server({"--device", "cuda", "--context", "200", "--admission", "off"});
  unsetenv("RECKONER_CUDA_LIBRARY");
  unsetenv("FAKE_GPU_STEPS");
  Client client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
  const std::string body = R"({"prompt": "Define lantern.", "max_tokens": 20, "temperature": 0})";
  const ClientResponse failed = client.post("/v1/completions", body);
  EXPECT_EQ(failed.status, 500) << failed.body;
  expect_parts(failed.body, {"the device failed", "illegal memory access"});
  EXPECT_EQ(Client(server.port()).post("/v1/completions", body).status, 500) << "later requests fail too, and the process lives";
  const ClientResponse health = Client(server.port()).get("/health");
  EXPECT_EQ(health.status, 503);
  expect_parts(health.body, {"device failed"});
}

TEST(Kernels, DescribedHardwareNeedsNoGpu) {
  const ProgramRun run = on_fake("kernels --hardware rtx-5090 --model models/pocket");
  EXPECT_EQ(run.status, 0) << run.err;
  expect_parts(run.out, {"NVIDIA GeForce RTX 5090: compute capability 12.0", "101376 bytes of shared memory a block", "of 101376 B",
                         "linear_experts.fake                40960 B", "models/pocket: its weights take", "which one such GPU holds",
                         "linear_experts", "NVFP4"});
  EXPECT_EQ(run.out.find("MXFP8"), std::string::npos) << "the pocket model has none";
  const ProgramRun none = without_library("kernels --hardware h200");
  EXPECT_EQ(none.status, 1);
  expect_parts(none.err, {"no/such/cuda.so"});
}

TEST(Kernels, ThisProcessorServesEverything) {
  const ProgramRun run = run_program({"kernels"});
  EXPECT_EQ(run.status, 0) << run.err;
  for (const char* part : {"linear ", "route ", "attend_latent ", "INT4", "exact", "fast"}) expect_parts(run.out, {part});
  expect_error({"kernels", "--hardware", "abacus"}, 2, {"expected one of cpu, cuda, h100", "found 'abacus'"});
}

}  // namespace
}  // namespace reckoner
