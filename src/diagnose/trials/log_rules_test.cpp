#include "diagnose/trials/log_rules.h"

#include <gtest/gtest.h>

#include <fstream>

#include "diagnose/trials/answers.h"
#include "diagnose/trials/scratch_test_support.h"

namespace reckoner::trials {
namespace {

TrialFile file_with(const std::string& more) {
  return parse_trial_file("name = \"a\"\n[target]\ncommand = [\"s\"]\n[[factor]]\nname = \"f\"\nvalues = [\"x\", \"y\"]\n" + more, "a.toml",
                          "/")
      .value();
}

LogFindings scan(const std::string& log, const std::string& more = "") {
  const ScratchFolder folder;
  std::ofstream(folder.path() / "log", std::ios::binary) << log;
  return scan_log(file_with(more), folder.path() / "log", "trial-1.log").value();
}

// Messages as servers print them, one a line of a public report.
TEST(LogRules, KnowMessagesOfServers) {
  struct Case {
    const char* line;
    Outcome outcome;
  };
  const Case cases[] = {
      {"RuntimeError: probability tensor contains either `inf`, `nan` or element < 0", Outcome::nan},
      {"ValueError: NaN in the logits", Outcome::nan},
      {"NaN detected! sampler: next_token_logits", Outcome::nan},
      {"ggml: found nan ffn_moe_weights_sum-60", Outcome::nan},
      {"status 500: a value that is not finite at step 0, position 11: layer 1, attention", Outcome::nan},
      {"attention.hpp:219 Unsupported architecture", Outcome::wrong_architecture},
      {"TllmGenFmhaRunner: Unsupported architecture", Outcome::wrong_architecture},
      {"CUDA error: no kernel image is available for execution on the device", Outcome::wrong_architecture},
      {"ValueError: No valid attention backend found for use_mla=True use_sparse=True", Outcome::wrong_architecture},
      {"triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376",
       Outcome::wrong_architecture},
      {"layout.hpp:56 Unknown recipe", Outcome::wrong_architecture},
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 10.00 GiB", Outcome::out_of_memory},
      {"Failed to CUDA calloc 10485760 bytes", Outcome::out_of_memory},
      {"terminate called after throwing an instance of 'std::bad_alloc'", Outcome::out_of_memory},
      {"RuntimeError: The size of tensor a (3072) must match the size of tensor b (6144)", Outcome::assertion},
      {"GGML_ASSERT(id >= 0 && id < n_expert) failed", Outcome::assertion},
      {"../aten/src/ATen/native/cuda/Indexing.cu:1289: Assertion `srcIndex < srcSelectDimSize` failed", Outcome::assertion},
      {"CUDA error: an illegal memory access was encountered", Outcome::crash},
      {"[rank3] Watchdog caught collective operation timeout", Outcome::hang},
      {"KeyError: 'layers.27.self_attn.qkv_proj.k_scale'", Outcome::no_start},
      {"ModuleNotFoundError: No module named 'flashinfer'", Outcome::no_start},
      {"server.py: error: unrecognized arguments: --moe", Outcome::no_start},
      {"0.00.014.456 E llama_init_from_model: quantized V cache requires flash_attn to be enabled", Outcome::no_start},
      {"llama_init_from_model: V cache quantization requires flash_attn", Outcome::no_start},
      {"E cmn  common_init_: failed to create context with model 'm.gguf'", Outcome::no_start},
      {"E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 38220", Outcome::no_start},
      {"llama_model_load: error loading model: tensor 'blk.0.attn_k.weight' data is not within the file bounds", Outcome::no_start},
  };
  for (const Case& one : cases) {
    const LogFindings found = scan(std::string("starting\n") + one.line + "\nbye\n");
    ASSERT_TRUE(found.failure.has_value()) << one.line;
    EXPECT_EQ(name(found.failure->outcome), name(one.outcome)) << one.line << " by rule " << found.failure->rule;
    EXPECT_EQ(found.failure->evidence.line, 2);
    EXPECT_EQ(found.failure->evidence.text, one.line);
  }
}

TEST(LogRules, KnowWhatIsNoFailure) {
  for (const char* line : {"INFO: Uvicorn running on http://127.0.0.1:8000", "finance department: 12", "Using NaN-safe kernels",
                           "assigned 8 experts a rank", "Memory pool end. avail mem=3.2 GB", "checking the checkpoint"}) {
    EXPECT_FALSE(scan(line).failure.has_value()) << line << ": " << scan(line).failure->rule;
  }
}

// What matters is the first cause, not what it drags along; and the phase that it happened in.
TEST(LogRules, TheMoreSpecificLineCounts) {
  const LogFindings found = scan(
      "Load weight begin. avail mem=90 GB\nCapture cuda graph begin. This can take up to several minutes.\n\n"
      "Error: worker failed\nCUDA out of memory\nCUDA out of memory again\nAssertionError: worker died\n");
  ASSERT_TRUE(found.failure.has_value());
  EXPECT_EQ(found.failure->outcome, Outcome::out_of_memory);
  EXPECT_EQ(found.failure->phase, "graph capture");
  EXPECT_EQ(found.failure->evidence.line, 5);
  EXPECT_EQ(found.last_line.line, 7);
  EXPECT_EQ(found.last_line.file, "trial-1.log");
}

// llama.cpp says the cause once and then, function by function, that it did not work. Lines of real starts.
TEST(LogRules, TheCauseCountsInLlamaCpp) {
  const LogFindings settings = scan(
      "0.00.014.590 E common_fit_params: encountered an error while trying to fit params to free device memory: failed to create "
      "llama_context from model\n"
      "0.00.015.444 E llama_init_from_model: quantized V cache requires flash_attn to be enabled\n"
      "0.00.015.460 E cmn  common_init_: failed to create context with model 'm.gguf'\n"
      "0.00.015.844 E srv          init: exiting due to model loading error\n");
  ASSERT_TRUE(settings.failure.has_value());
  EXPECT_EQ(settings.failure->outcome, Outcome::no_start);
  EXPECT_EQ(settings.failure->evidence.line, 2);
  const LogFindings file = scan(
      "E gguf_init_from_file: failed to open GGUF file 'm.gguf' (No such file or directory)\n"
      "E llama_model_load: error loading model: llama_model_loader: failed to load model from m.gguf\n"
      "E cmn  common_init_: failed to load model 'm.gguf'\n");
  ASSERT_TRUE(file.failure.has_value());
  EXPECT_EQ(file.failure->evidence.line, 1);
}

TEST(LogRules, PatternsOfTheFileCountFirst) {
  const std::string patterns =
      "[[pattern]]\nname = \"scale\"\nlog = 'not ue8m0'\n[[pattern]]\nname = \"mine\"\nlog = 'boom \\d+'\noutcome = \"garbage\"\n";
  const LogFindings found = scan("scale is not ue8m0\nCUDA out of memory\nboom 1\nnot ue8m0 either\nboom 2\n", patterns);
  ASSERT_TRUE(found.failure.has_value());
  EXPECT_EQ(found.failure->outcome, Outcome::garbage);
  EXPECT_EQ(found.failure->evidence.line, 3);
  ASSERT_EQ(found.patterns.size(), 2U);
  EXPECT_EQ(found.patterns[0].pattern, "scale");
  EXPECT_EQ(found.patterns[0].kind, PatternKind::warning);
  EXPECT_EQ(found.patterns[0].count, 2);
  EXPECT_EQ(found.patterns[0].evidence.line, 1);
  EXPECT_EQ(found.patterns[1].kind, PatternKind::classification);
}

TEST(LogRules, ReadSettingsBack) {
  const std::string keys = "[[effective]]\nkey = \"kv\"\nlog = 'cache dtype to (\\w+)'\n";
  const LogFindings found = scan("Setting KV cache dtype to auto\nSetting KV cache dtype to bfloat16 for this device\n", keys);
  EXPECT_EQ(found.effective, (Settings{{"kv", "bfloat16"}}));
}

// A line of a megabyte, bytes that are no text, no newline at the end.
TEST(LogRules, BearAnyBytes) {
  std::string log = std::string(1 << 20, 'a') + "\n\xFF\xFE" + '\0' + "\n";
  log += "CUDA out of memory \xE4\xBD";
  const LogFindings found = scan(log);
  ASSERT_TRUE(found.failure.has_value());
  EXPECT_EQ(found.failure->evidence.text, "CUDA out of memory \xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Answers, ComplaintsAreAboutWhatIsNoLanguage) {
  EXPECT_EQ(complaint_about("A river begins as rain. It ends in the sea."), "");
  EXPECT_EQ(complaint_about("Gr\xC3\xBC\xC3\x9F"
                            "e \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x99\x82"),
            "");
  EXPECT_EQ(complaint_about("| a | b |\n|------------------------------|---|"), "");
  EXPECT_EQ(complaint_about("ha ha ha ha"), "");
  EXPECT_NE(complaint_about(std::string(60, '!')), "");
  EXPECT_NE(complaint_about("so: foss foss foss foss foss foss foss foss"), "");
  std::string loop = "It";
  for (int i = 0; i < 8; ++i) loop += " is what it is,";
  EXPECT_NE(complaint_about(loop), "");
  EXPECT_EQ(complaint_about("a \xEF\xBF\xBD b \xEF\xBF\xBD"), "2 U+FFFD in it");
  EXPECT_EQ(complaint_about("cut \xE4\xBD"), "bytes that are no UTF-8");
}

TEST(Answers, FingerprintsAreFnv1a) {
  // Published test vectors of 64-bit FNV-1a.
  EXPECT_EQ(fingerprint_of(""), "cbf29ce484222325");
  EXPECT_EQ(fingerprint_of("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(fingerprint_of("foobar"), "85944171f73967e8");
}

}  // namespace
}  // namespace reckoner::trials
