// reckoner doctor and reckoner findings as programs; and what the doctor predicts against what `serve` takes.
#include <boost/json.hpp>
#include <cmath>
#include <thread>

#include "cli_support.h"
#include "client.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "model/family.h"
#include "running_server.h"

namespace reckoner {
namespace {

namespace json = boost::json;

void expect_screen(const std::string& text) {
  std::size_t lines = 0;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    EXPECT_LE(end - at, 100u) << text.substr(at, end - at);
    ++lines;
  }
  EXPECT_LE(lines, 48u) << text;
}

double predicted_bytes(const std::string& model, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"doctor", model, "--hardware", "cpu", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const ProgramRun run = run_program(words);
  EXPECT_EQ(run.status, 0) << run.err << run.out;
  return number_at(parsed(run.out), {"memory", "total_bytes"});
}

// What a process holds of its own and of files.
double resident_bytes(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) * 1024;
  }
  return 0;
}

// Fills the cache: prompts that share nothing, one after the other, each of `words` words.
void fill_cache(std::uint16_t port, int prompts, int words) {
  for (int prompt = 0; prompt < prompts; ++prompt) {
    std::string text;
    for (int word = 0; word < words; ++word) text += " " + std::to_string((prompt * 7919 + word * 31) % 97);
    const std::string body = json::serialize(json::object{{"prompt", text}, {"max_tokens", 2}, {"ignore_eos", true}});
    EXPECT_EQ(Client(port).post("/v1/completions", body).status, 200);
  }
}

// A model of the pocket model's kind with other sizes and made-up weights.
void make_model(const fs::path& folder, std::int64_t hidden, std::int64_t layers, std::int64_t inner) {
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"})
    fs::copy(fs::path(kModel) / file, folder / file);
  std::ifstream original(fs::path(kModel) / "config.json");
  json::object config = json::parse(std::string(std::istreambuf_iterator<char>(original), {})).as_object();
  config.erase("quantization_config");
  config["hidden_size"] = hidden;
  config["num_hidden_layers"] = layers;
  config["moe_intermediate_size"] = inner;
  config["intermediate_size"] = 2 * inner;
  config["num_nextn_predict_layers"] = 0;
  std::ofstream(folder / "config.json") << json::serialize(config);

  const Result<ModelConfig> read = read_model_config(folder);
  ASSERT_TRUE(read.ok()) << read.error().message();
  const Result<const Family*> family = find_family(*read);
  ASSERT_TRUE(family.ok());
  // All tensors are views of the same numbers, small ones of either sign.
  std::vector<std::uint16_t> values(static_cast<std::size_t>(std::max<std::int64_t>(read->vocab_size, 4 * inner) * hidden * 4));
  std::uint32_t state = 1;
  for (std::uint16_t& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<std::uint16_t>(0x3c00 + (state >> 25) + ((state & 0x10000) != 0 ? 0x8000 : 0));
  }
  std::vector<NamedTensor> tensors;
  for_each_rule(**family, *read, [&](const WeightRule& rule) {
    for_each_place(rule, *read, [&](WeightPlace place) {
      const bool is_bias = rule.name.ends_with("e_score_correction_bias");
      tensors.push_back(
          {published_name(**family, rule, place) + (rule.matrix != nullptr ? ".weight" : ""),
           {.data = reinterpret_cast<std::byte*>(values.data()), .dtype = is_bias ? DType::f32 : DType::bf16, .shape = rule.shape(*read)}});
    });
  });
  const Status written = write_safetensors(folder / "model.safetensors", tensors);
  ASSERT_TRUE(written.ok()) << written.error().message();
}

// The cache has been filled by two prompts of `words` words, and the largest step has run.
void expect_predicted(const std::string& model, int context, int words) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's memory is not predicted";
#endif
  const std::vector<std::string> settings = {"--context", std::to_string(context)};
  const double predicted = predicted_bytes(model, settings);
  const RunningServer server(model, {"--device", "cpu", "--context", settings[1], "--cache-tokens", settings[1]});
  fill_cache(server.port(), 2, words);
  const double measured = resident_bytes(server.process());
  EXPECT_LT(std::abs(predicted - measured) / measured, 0.05);
  std::printf("predicted %.1f MB, measured %.1f MB\n", predicted / 1e6, measured / 1e6);
}

TEST(DoctorMemory, IsWithinFivePerCentForThePocketModel) { expect_predicted(kModel, 2048, 600); }

TEST(DoctorMemory, IsWithinFivePerCentForALargerModel) {
  const Scratch scratch;
  const fs::path folder = fs::path(scratch.write("x", "")).parent_path();
  make_model(folder, 1024, 6, 512);
  if (HasFatalFailure()) return;
  expect_predicted(folder.string(), 1024, 400);
}

TEST(DoctorProgram, ThePocketModelHereIsOneScreen) {
  const ProgramRun run = run_program({"doctor", kModel, "--hardware", "cpu"});
  EXPECT_EQ(run.status, 0) << run.err << run.out;
  expect_screen(run.out);
  for (const char* part : {"machine\n", "checkpoint\n", "memory, for 1 request of ", "speed, predicted\n", "kernels\n",
                           "verdict: ", "reckoner serve models/pocket --context "})
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
}

TEST(DoctorProgram, WithoutAModelTheMachineIsLookedAt) {
  const ProgramRun run = run_program({"doctor"});
  EXPECT_EQ(run.status, 0) << run.err << run.out;
  expect_screen(run.out);
  EXPECT_NE(run.out.find("open files"), std::string::npos) << run.out;
  EXPECT_EQ(at(parsed(run_program({"doctor", "--json"}).out), {"host", "open_files"}).as_int64(1, 1LL << 40).ok(), true);
}

TEST(DoctorProgram, WhatDoesNotFitHasStatusOneAndAWayOut) {
  const ProgramRun run = run_program({"doctor", kModel, "--hardware", "rtx-4090", "--context", "8192", "--streams", "1024"});
  EXPECT_EQ(run.status, 1) << run.err << run.out;
  expect_screen(run.out);
  EXPECT_NE(run.out.find("DOES NOT FIT"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("would fit"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("verdict: it will not work as asked"), std::string::npos) << run.out;
}

TEST(DoctorProgram, UsageErrorsHaveStatusTwo) {
  expect_error({"doctor", kModel, "--hardware", "8x h2000"}, 2, {"there is no hardware '8x h2000'", "h200"});
  expect_error({"doctor", "no/such/model/here"}, 2, {"no/such/model/here"});
  expect_error({"doctor", kModel, "--streams", "0"}, 2, {"--streams"});
}

// The command that the doctor gives is one that serve takes.
TEST(DoctorProgram, TheCommandThatItGivesServes) {
  const ProgramRun run = run_program({"doctor", kModel, "--hardware", "cpu", "--context", "512", "--streams", "2", "--json"});
  const std::string command = text_at(parsed(run.out), {"serve"});
  const std::string start = std::string("reckoner serve ") + kModel + " ";
  ASSERT_TRUE(command.starts_with(start)) << command;
  std::vector<std::string> words;
  std::istringstream rest(command.substr(start.size()));
  for (std::string word; rest >> word;) words.push_back(word);
  const RunningServer server(words);
  EXPECT_EQ(Client(server.port()).get("/ready").status, 200);
}

TEST(FindingsProgram, ALogShowsItsFindingsWithTheLine) {
  const Scratch scratch;
  std::string log;
  for (int i = 0; i < 5000; ++i) log += "INFO nothing of note\n";
  log += "Setting KV cache dtype to bfloat16 for DeepSeek DSA on SM12 device.\n";
  const ProgramRun run = run_program({"findings", "search", scratch.write("server.log", log)});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("kv-type-overridden: "), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("line 5001: Setting KV cache dtype"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("https://github.com/"), std::string::npos) << run.out;
  const ProgramRun piped = run_program({"findings", "search", "-", "--json"}, log);
  const JsonDocument found = parsed(piped.out);
  const std::vector<JsonNode> matches = list_at(found, {"matches"});
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].required("line_number")->as_int64(0, 1 << 20).value(), 5001);
}

TEST(FindingsProgram, NothingFoundHasStatusOne) {
  const Scratch scratch;
  const ProgramRun run = run_program({"findings", "search", scratch.write("server.log", "all is well\n")});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.out.find("known failures is in "), std::string::npos) << run.out;
}

TEST(FindingsProgram, WordsFindTheNearest) {
  const ProgramRun run = run_program({"findings", "search", "follow-up is gibberish with fp8 cache prefix"});
  EXPECT_EQ(run.status, 0);
  EXPECT_NE(run.out.find("fp8-kv-prefix-gibberish"), std::string::npos) << run.out;
}

TEST(FindingsProgram, ListAndShow) {
  const ProgramRun all = run_program({"findings", "list"});
  EXPECT_EQ(all.status, 0);
  EXPECT_NE(all.out.find("\nno-kernel-image "), std::string::npos) << all.out;
  const ProgramRun some = run_program({"findings", "list", "--engine", "ktransformers"});
  EXPECT_EQ(some.out.find("fp4-gemm-pdl-race"), std::string::npos) << some.out;
  EXPECT_NE(some.out.find("illegal-cpu-instruction"), std::string::npos) << some.out;
  const ProgramRun one = run_program({"findings", "show", "no-kernel-image"});
  for (const char* part : {"confidence  confirmed", "compute capability", "https://github.com/vllm-project/vllm/issues/16901"})
    EXPECT_NE(one.out.find(part), std::string::npos) << part << "\n" << one.out;
  expect_error({"findings", "show", "no-kernel-imag"}, 1, {"there is no finding 'no-kernel-imag'", "did you mean no-kernel-image?"});
}

TEST(FindingsProgram, OnesOwnFolderIsRead) {
  const Scratch scratch;
  const std::string file = scratch.write("house-rule.toml", R"(id = "house-rule"
title = "The cable is loose"
confidence = "confirmed"
cause = "Somebody trips over it."
remedy = "Tape."
sources = ["https://example.com/cable"]
[[symptoms]]
literal = "carrier lost"
example = "eth0: carrier lost"
)");
  const std::string folder = fs::path(file).parent_path().string();
  const ProgramRun run = run_program({"findings", "search", "eth0: Carrier LOST", "--findings", folder});
  EXPECT_NE(run.out.find("house-rule: The cable is loose"), std::string::npos) << run.out << run.err;
  scratch.write("house-rule.toml", "id = \"house-rule\"\n");
  expect_error({"findings", "list", "--findings", folder}, 1, {"house-rule.toml", "title"});
}

}  // namespace
}  // namespace reckoner
