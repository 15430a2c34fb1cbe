// The device path of steps, on a fake GPU whose memory the host cannot touch: the same numbers as the processor's references give, with and
// without recorded steps; weights arrive byte by byte; what fails says so and takes nothing else along.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "diagnose/verify/verify.h"
#include "engine/engine.h"
#include "engine/single_sequence.h"
#include "fake_backend.h"
#include "kernels/cpu/catalogue.h"
#include "kernels/device/backend_memory.h"
#include "kernels/device/open_backend.h"
#include "model/upload.h"
#include "quant/format.h"

namespace reckoner {
namespace {

constexpr StepLimits kLimits = {.max_tokens = 64, .max_samples = 64, .max_context = 200};

std::unique_ptr<Model> opened(const std::string& folder) {
  auto model = open_model(folder);
  CHECK(model.ok(), folder);
  return std::move(model).value();
}

// A fake GPU with a model's weights on it.
class OnFake {
 public:
  OnFake(const std::string& folder, Graphs graphs, const FakeGpu& gpu = {})
      : backend(fake_backend(gpu)), model(opened(folder)), memory(*backend, 0, (*backend->devices())[0]) {
    device = {.info = memory.info(), .catalogue = backend->catalogue(), .memory = &memory, .graphs = graphs};
    auto uploaded = upload_weights(*model, memory, pool, {});
    CHECK(uploaded.ok(), uploaded.ok() ? "" : uploaded.error().what);
    weights = std::move(uploaded).value();
  }
  StepRunner runner(const StepLimits& limits = kLimits, Precision precision = Precision::exact) {
    return {*model, weights, device, pool, precision, limits};
  }

  const DeviceBackend* backend;
  std::unique_ptr<Model> model;
  ThreadPool pool{2};
  BackendMemory memory;
  ModelWeights weights;
  Device device;
};

std::vector<std::int32_t> some_tokens(std::int64_t count, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>((7 + i * 31) % vocab));
  return ids;
}

// Logits of a prompt in two chunks, then token by token; every row's.
std::vector<float> logits_of(StepRunner& runner) {
  SingleSequence sequence(runner);
  const std::int64_t vocab = runner.config().vocab_size;
  const std::vector<std::int32_t> ids = some_tokens(90, vocab);
  std::vector<float> all;
  for (std::size_t first = 0; first < ids.size();) {
    const std::size_t count = first < 80 ? 40 : 1;
    const StepOutput output = sequence.append(std::span(ids).subspan(first, count), Sample::yes);
    EXPECT_EQ(output.error, "");
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(count); ++row) EXPECT_EQ(output.first_bad.i32()[row], Guard::kClean);
    all.insert(all.end(), output.logits.f32(), output.logits.f32() + static_cast<std::int64_t>(count) * vocab);
    first += count;
  }
  return all;
}

class DeviceStepTest : public testing::TestWithParam<const char*> {};

TEST_P(DeviceStepTest, GivesWhatTheReferencesGiveOnTheProcessor) {
  const std::string folder = std::string("tests/golden/") + GetParam();
  const auto model = opened(folder);
  ThreadPool pool(1);
  StepRunner host(*model, cpu_catalogue(), limited_to(detect_cpu(), "scalar"), pool, Precision::exact, kLimits);
  const std::vector<float> expected = logits_of(host);
  for (const Graphs graphs : {Graphs::off, Graphs::on}) {
    OnFake fake(folder, graphs);
    StepRunner runner = fake.runner();
    ASSERT_TRUE(runner.status().ok()) << runner.status().error().what;
    EXPECT_EQ(logits_of(runner), expected);  // bit by bit: the kernels are the same
    // 40 rows once and again, then single rows: the second of each kind is recorded, and replayed as often as it comes.
    EXPECT_EQ(runner.recorded_steps(), graphs == Graphs::on ? 2 : 0);
    EXPECT_EQ(fake_counts().replayed, graphs == Graphs::on ? 10 : 0);
    EXPECT_EQ(runner.recording_failure(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(, DeviceStepTest,
                         testing::Values("glm_moe_dsa", "deepseek_v32", "deepseek_v3_groups", "kimi_k2", "glm4_moe", "glm4_moe_lite"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST(DeviceStep, TapsSeeTheValuesOfTheReference) {
  OnFake fake("tests/golden/glm_moe_dsa", Graphs::on);
  const auto cases = read_reference("tests/golden/glm_moe_dsa/reference.safetensors", fake.model->config);
  ASSERT_TRUE(cases.ok());
  StepRunner runner = fake.runner({.max_tokens = 128, .max_samples = 128, .max_context = 1100});
  for (const VerifyCase& result : verify(runner, *cases, {37, 1})) {
    for (const VerifyRun& run : result.runs) {
      EXPECT_EQ(run.failure, "") << result.name << ", " << run.chunk << " tokens a step";
      for (std::size_t layer = 0; layer < run.hidden_error.size(); ++layer) EXPECT_LE(run.hidden_error[layer], 1e-3);
      EXPECT_GT(run.hidden_scale.back(), 0);
    }
  }
  EXPECT_GT(runner.recorded_steps(), 0);
}

TEST(DeviceStep, OneCopyInAndOneBackAStep) {
  OnFake fake("tests/golden/glm4_moe", Graphs::off);
  StepRunner runner = fake.runner();
  SingleSequence sequence(runner);
  const FakeCounts before = fake_counts();
  const std::vector<std::int32_t> ids = some_tokens(3, 100);
  ASSERT_EQ(sequence.append(ids, Sample::no).error, "");
  EXPECT_EQ(fake_counts().copies_in - before.copies_in, 1);
  EXPECT_EQ(fake_counts().copies_out - before.copies_out, 1);
}

TEST(DeviceStep, AnotherCacheMakesRecordedStepsInvalid) {
  OnFake fake("tests/golden/glm4_moe", Graphs::on);
  StepRunner runner = fake.runner();
  const std::vector<float> first = logits_of(runner);
  EXPECT_EQ(logits_of(runner), first);  // in a cache of its own; the one before is gone
}

TEST(DeviceStep, StepsRunUnrecordedWhereRecordingFails) {
  std::vector<float> expected;
  {
    OnFake fake("tests/golden/glm4_moe", Graphs::off);
    StepRunner runner = fake.runner();
    expected = logits_of(runner);
  }
  OnFake fake("tests/golden/glm4_moe", Graphs::on, {.refuses_capture = true});
  StepRunner runner = fake.runner();
  EXPECT_EQ(logits_of(runner), expected);
  EXPECT_EQ(runner.recorded_steps(), 0);
  EXPECT_NE(runner.recording_failure().find("not permitted"), std::string::npos) << runner.recording_failure();
  EXPECT_TRUE(runner.status().ok());
}

TEST(DeviceStep, SaysWhichKernelIsMissingAndWhy) {
  OnFake fake("tests/golden/glm4_moe", Graphs::off, {.lacks_linear_bf16 = true});
  StepRunner runner = fake.runner();
  if (fake.model->weights.lm_head.format != QuantFormat::bf16) GTEST_SKIP() << "this golden is not BF16";
  ASSERT_FALSE(runner.status().ok());
  const std::string what = runner.status().error().message();
  for (const char* part : {"linear", "BF16", "exact", "Fake GPU", "fake: needs what the fake lacks", "--device cpu"})
    EXPECT_NE(what.find(part), std::string::npos) << part << " is not in: " << what;
}

TEST(DeviceStep, TooLittleMemoryIsAnErrorThatSaysHowMuch) {
  const auto model = opened("tests/golden/glm4_moe");
  const std::int64_t weights = upload_bytes(*model);
  OnFake fake("tests/golden/glm4_moe", Graphs::off, {.memory_bytes = weights + 1000});
  StepRunner runner = fake.runner();
  ASSERT_FALSE(runner.status().ok());
  EXPECT_NE(runner.status().error().what.find("GB are free"), std::string::npos) << runner.status().error().what;
  EXPECT_NE(runner.status().error().remedy.find("--context"), std::string::npos);
}

// --- weights ------------------------------------------------------------------------------------------------------

// What lies in the device's memory.
std::vector<std::byte> bytes_on(DeviceMemory& memory, const std::byte* data, std::int64_t bytes) {
  const Stream stream = memory.make_stream();
  const Buffer here(bytes, &memory, BufferKind::pinned);
  memory.copy_out(stream, here.data(), data, bytes);
  memory.synchronise(stream);
  memory.release_stream(stream);
  return {here.data(), here.data() + bytes};
}

void expect_same_bytes(DeviceMemory& memory, const Weight& host, const Weight& device) {
  const FormatInfo& format = info(host.format);
  const std::int64_t data_bytes = host.rows * format.row_bytes(host.cols);
  EXPECT_EQ(bytes_on(memory, device.data, data_bytes), std::vector<std::byte>(host.data, host.data + data_bytes)) << host.name;
  EXPECT_EQ(device.scale, host.scale);
  ASSERT_EQ(device.scales == nullptr, host.scales == nullptr);
  if (host.scales == nullptr) return;
  for (std::int64_t row = 0; row < host.rows; row += 1 + host.rows / 7) {
    const std::int64_t bytes = format.scale_row_bytes(host.cols);
    EXPECT_EQ(bytes_on(memory, scale_row(device, row), bytes), std::vector<std::byte>(scale_row(host, row), scale_row(host, row) + bytes));
  }
}

class UploadTest : public testing::TestWithParam<const char*> {};

TEST_P(UploadTest, BringsEveryByteOver) {
  OnFake fake(GetParam(), Graphs::off);
  const ModelWeights& host = fake.model->weights;
  expect_same_bytes(fake.memory, host.embed, fake.weights.embed);
  expect_same_bytes(fake.memory, host.lm_head, fake.weights.lm_head);
  for (std::size_t layer = 0; layer < host.layers.size(); ++layer) {
    const LayerWeights& here = host.layers[layer];
    const LayerWeights& there = fake.weights.layers[layer];
    EXPECT_EQ(bytes_on(fake.memory, there.input_norm.data, here.input_norm.bytes()),
              std::vector<std::byte>(here.input_norm.data, here.input_norm.data + here.input_norm.bytes()));
    if (fake.model->config.is_mla()) expect_same_bytes(fake.memory, here.attention.kv_b, there.attention.kv_b);
    ASSERT_EQ(here.moe.down.size(), there.moe.down.size());
    for (std::size_t expert = 0; expert < here.moe.down.size(); ++expert) {
      expect_same_bytes(fake.memory, here.moe.gate[expert], there.moe.gate[expert]);
      expect_same_bytes(fake.memory, here.moe.down[expert], there.moe.down[expert]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, UploadTest, testing::Values("models/pocket", "tests/golden/kimi_k2", "tests/golden/glm4_moe"),
                         [](const auto& parameter) {
                           const std::string name = parameter.param;
                           return name.substr(name.find_last_of('/') + 1);
                         });

TEST(Upload, TooLittleMemoryIsFoundBeforeAnythingIsRead) {
  const DeviceBackend* backend = fake_backend({.memory_bytes = 1 << 20});
  const auto model = opened("models/pocket");
  BackendMemory memory(*backend, 0, (*backend->devices())[0]);
  ThreadPool pool(1);
  const auto weights = upload_weights(*model, memory, pool, {});
  ASSERT_FALSE(weights.ok());
  EXPECT_NE(weights.error().what.find("GB of Fake GPU are free"), std::string::npos) << weights.error().what;
  EXPECT_TRUE(memory.status().ok()) << "nothing was tried";
  EXPECT_EQ(fake_counts().copies_in, 0);
}

TEST(Upload, ReportsProgressUpToTheWhole) {
  const DeviceBackend* backend = fake_backend();
  const auto model = opened("tests/golden/glm4_moe");
  BackendMemory memory(*backend, 0, (*backend->devices())[0]);
  ThreadPool pool(1);
  std::int64_t last = 0;
  std::int64_t all = 0;
  const auto weights = upload_weights(*model, memory, pool, [&](std::int64_t done, std::int64_t total) {
    EXPECT_GE(done, last);
    last = done;
    all = total;
  });
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(last, all);
  EXPECT_EQ(all, upload_bytes(*model));
}

// --- the engine ---------------------------------------------------------------------------------------------------

struct Answer {
  std::vector<std::int32_t> tokens = {};
  FinishReason finish = FinishReason::none;
  std::string error = {};
};

Request greedy(std::int64_t length, std::int64_t vocab, std::int64_t max_tokens) {
  Request request{.prompt = some_tokens(length, vocab)};
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

std::vector<Answer> answers_of(Engine& engine, std::int64_t vocab) {
  std::vector<Answer> answers(4);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_TRUE(engine.submit(greedy(5 + 20 * i, vocab, 12)).ok());
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      Answer& answer = answers[static_cast<std::size_t>(event.request)];
      if (event.token >= 0) answer.tokens.push_back(event.token);
      answer.finish = event.finish;
      answer.error = event.error;
    }
    EXPECT_TRUE(check_invariants(engine).ok());
  }
  return answers;
}

constexpr EngineLimits kEngineLimits = {.max_context = 200, .cache_tokens = 800, .max_sequences = 4, .max_step_tokens = 32};

TEST(DeviceEngine, AnswersAsOnTheProcessor) {
  const auto model = opened("tests/golden/glm_moe_dsa");
  ThreadPool pool(1);
  Engine host(*model, cpu_catalogue(), limited_to(detect_cpu(), "scalar"), pool, Precision::exact, kEngineLimits);
  const std::vector<Answer> expected = answers_of(host, model->config.vocab_size);
  OnFake fake("tests/golden/glm_moe_dsa", Graphs::on);
  Engine engine(*fake.model, fake.weights, fake.device, fake.pool, Precision::exact, kEngineLimits);
  const std::vector<Answer> found = answers_of(engine, model->config.vocab_size);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    EXPECT_EQ(found[i].finish, FinishReason::length) << i;
  }
  EXPECT_GT(fake_counts().replayed, 0);
  for (std::size_t place = 0; place < engine.stats().rms.size(); ++place) {
    EXPECT_EQ(engine.stats().rms[place].low, host.stats().rms[place].low) << place;
    EXPECT_EQ(engine.stats().rms[place].high, host.stats().rms[place].high) << place;
  }
}

TEST(DeviceEngine, ABadRowEndsItsOwnRequestOnly) {
  OnFake fake("tests/golden/glm_moe_dsa", Graphs::on);
  Engine engine(*fake.model, fake.weights, fake.device, fake.pool, Precision::exact, kEngineLimits);
  engine.inject = {.request = 2, .position = 50, .place = GuardPlace::attention(1)};
  const std::vector<Answer> answers = answers_of(engine, fake.model->config.vocab_size);
  for (std::size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i].finish, i == 2 ? FinishReason::error : FinishReason::length) << i;
  EXPECT_NE(answers[2].error.find("position 50: layer 1, attention"), std::string::npos) << answers[2].error;
}

TEST(DeviceEngine, AFailedDeviceEndsRequestsWithItsReason) {
  OnFake fake("tests/golden/glm4_moe", Graphs::on);
  Engine engine(*fake.model, fake.weights, fake.device, fake.pool, Precision::exact, kEngineLimits);
  fake_fail_after(3);
  const std::vector<Answer> answers = answers_of(engine, fake.model->config.vocab_size);
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.finish, FinishReason::error);
    EXPECT_NE(answer.error.find("the device failed"), std::string::npos) << answer.error;
    EXPECT_NE(answer.error.find("illegal memory access"), std::string::npos) << answer.error;
  }
  EXPECT_EQ(engine.stats().failed, 4);
  EXPECT_TRUE(engine.stats().device_failed);
}

// --- opening ------------------------------------------------------------------------------------------------------

void expect_refused(const FakeGpu& gpu, const std::string& part) {
  const auto opened_backend = accept_backend(fake_backend(gpu), "somewhere/reckoner_cuda.so");
  ASSERT_FALSE(opened_backend.ok());
  EXPECT_NE(opened_backend.error().what.find(part), std::string::npos) << opened_backend.error().what;
  EXPECT_NE(opened_backend.error().remedy, "");
}

TEST(OpenBackend, SaysWhatIsMissing) {
  expect_refused({.is_other_build = true}, "somewhere/reckoner_cuda.so is of another build");
  expect_refused({.has_driver = false}, "no driver");
  expect_refused({.count = 0}, "no GPU");
  const auto found = accept_backend(fake_backend({.count = 2}), "x");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->devices.size(), 2u);
}

TEST(OpenBackend, NamesTheLibraryThatWasAskedFor) {
  ASSERT_EQ(setenv("RECKONER_CUDA_LIBRARY", "no/such/library.so", 1), 0);
  const auto none = open_cuda_backend();
  unsetenv("RECKONER_CUDA_LIBRARY");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().what.find("no/such/library.so"), std::string::npos) << none.error().what;
}

}  // namespace
}  // namespace reckoner
