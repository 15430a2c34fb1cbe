// The program as its users see it.
#include <set>

#include "cli_support.h"

namespace reckoner {
namespace {

TEST(Run, AnswersThePromptOnStdoutAndNothingElse) {
  const ProgramRun run = run_program(ask({"Define lantern."}));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, std::string(kLantern) + "\n");
  EXPECT_NE(run.err.find("12 prompt tokens, "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find(" tok/s decode"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find('\x1b'), std::string::npos) << "colours belong on a terminal";
}

TEST(Run, ReadsThePromptFromStdin) {
  for (const std::vector<std::string>& arguments : {ask({"-"}), ask({})}) {
    EXPECT_EQ(run_program(arguments, "Define lantern.\n").out, std::string(kLantern) + "\n");
  }
}

TEST(Run, QuietSaysNothingOnStderr) { EXPECT_EQ(run_program(ask({"-q", "Define lantern."})).err, ""); }

TEST(Run, JsonHasEverythingThatMatters) {
  const ProgramRun run = run_program(ask({"--json", "--threads", "2", "Define lantern."}));
  ASSERT_EQ(run.status, 0) << run.err;
  const JsonDocument json = parsed(run.out);
  EXPECT_EQ(text_at(json, {"text"}), kLantern);
  EXPECT_EQ(text_at(json, {"reasoning"}), "");
  EXPECT_EQ(text_at(json, {"finish_reason"}), "stop");
  EXPECT_EQ(number_at(json, {"prompt_tokens"}), 12);
  EXPECT_EQ(at(json, {"token_ids"}).as_array()->size(), static_cast<std::size_t>(number_at(json, {"completion_tokens"})));
  EXPECT_TRUE(*at(json, {"sampling", "greedy"}).as_bool());
  EXPECT_EQ(text_at(json, {"precision"}), "fast");
  EXPECT_EQ(number_at(json, {"threads"}), 2);
  EXPECT_FALSE(text_at(json, {"kernels", "set"}).empty());
  EXPECT_TRUE(at(json, {"kernels", "ops", "linear"}).is_array());
  for (const char* key : {"load_s", "prompt_s", "decode_s", "prompt_tokens_per_s", "decode_tokens_per_s"}) {
    EXPECT_GT(number_at(json, {"timings", key}), 0) << key;
  }
}

TEST(Run, ReasoningIsNotPartOfTheAnswer) {
  const std::vector<std::string> arguments = {"run", kModel, "Describe erupt as JSON."};
  const std::string answer = R"({"word": "erupt", "part_of_speech": "verb", "definition": "start abruptly"})";
  EXPECT_EQ(run_program(arguments).out, answer + "\n");
  std::vector<std::string> with_json = arguments;
  with_json.emplace_back("--json");
  const JsonDocument json = parsed(run_program(with_json).out);
  EXPECT_EQ(text_at(json, {"text"}), answer);
  EXPECT_EQ(text_at(json, {"reasoning"}), "The word erupt is a verb. I answer with one JSON object.");
}

TEST(Run, RawTakesThePromptAsItIs) {
  const ProgramRun run =
      run_program({"run", kModel, "--raw", "[gMASK]<sop><|user|>Define lantern.<|assistant|></think>", "--show-special"});
  EXPECT_EQ(run.out, std::string(kLantern) + "<|user|>\n") << run.err;
}

TEST(Run, ToolsReachTheTemplate) {
  const Scratch scratch;
  const std::string tools = scratch.write(
      "tools.json",
      R"([{"type": "function", "function": {"name": "get_weather", "description": "Get the weather.", "parameters": {"type": "object", )"
      R"("properties": {"city": {"type": "string"}}, "required": ["city"]}}}])");
  const ProgramRun with = run_program(ask({"--json", "--tools", tools, "What is the weather in Oslo?"}));
  const ProgramRun without = run_program(ask({"--json", "What is the weather in Oslo?"}));
  ASSERT_EQ(with.status, 0) << with.err;
  EXPECT_GT(number_at(parsed(with.out), {"prompt_tokens"}), number_at(parsed(without.out), {"prompt_tokens"}) + 20);
}

std::string sampled(const std::string& seed, const std::string& threads) {
  const ProgramRun run = run_program(
      {"run", kModel, "--temperature", "1", "--top-p", "1", "--seed", seed, "--threads", threads, "--max-tokens", "24", "A tale."});
  EXPECT_EQ(run.status, 0) << run.err;
  return run.out;
}

TEST(Run, ASeedRepeatsAnAnswerWhateverTheThreads) {
  const std::string first = sampled("7", "1");
  EXPECT_EQ(sampled("7", "1"), first);
  EXPECT_EQ(sampled("7", "2"), first);
  std::set<std::string> different;
  for (const char* seed : {"1", "2", "3", "4", "5", "6"}) different.insert(sampled(seed, "2"));
  EXPECT_GT(different.size(), 1u);
}

TEST(Run, GreedyIsTheDefaultAndSaysWhatIsRecommended) {
  const ProgramRun run = run_program(ask({"-v", "Define lantern."}));
  EXPECT_NE(run.err.find("generation_config.json recommends temperature 1, top_p 0.95; run is greedy unless asked"), std::string::npos)
      << run.err;
  const ProgramRun sampling = run_program(ask({"--json", "--seed", "3", "Define lantern."}));
  const JsonDocument json = parsed(sampling.out);
  EXPECT_EQ(number_at(json, {"sampling", "temperature"}), 1);
  EXPECT_EQ(number_at(json, {"sampling", "top_p"}), 0.95);
  EXPECT_EQ(number_at(json, {"seed"}), 3);
}

TEST(Run, PrecisionsAndKernelsAgreeOnThisAnswer) {
  for (const char* precision : {"exact", "fast"}) {
    for (const char* kernels : {"scalar", "avx2", "auto"}) {
      const ProgramRun run = run_program(ask({"--precision", precision, "--kernels", kernels, "Define lantern."}));
      EXPECT_EQ(run.out, std::string(kLantern) + "\n") << precision << " " << kernels << ": " << run.err;
    }
  }
  EXPECT_EQ(run_program(ask({"--chunk", "2", "Define lantern."})).out, std::string(kLantern) + "\n");
}

// "transparent" is several tokens; a stop string may begin and end inside of tokens.
TEST(Run, StopStringsCrossTokens) {
  EXPECT_EQ(run_program(ask({"--stop", "parent prot", "Define lantern."})).out, "light in a trans\n");
  EXPECT_EQ(run_program(ask({"--stop", "nowhere", "--stop", "ght", "Define lantern."})).out, "li\n");
  const ProgramRun run = run_program(ask({"--json", "--stop", " in", "Define lantern."}));
  EXPECT_EQ(text_at(parsed(run.out), {"finish_reason"}), "stop");
  EXPECT_EQ(text_at(parsed(run.out), {"text"}), "light");
}

TEST(Run, MaxTokensCutsTheAnswer) {
  const ProgramRun run = run_program(ask({"--json", "--max-tokens", "3", "Define lantern."}));
  const JsonDocument json = parsed(run.out);
  EXPECT_EQ(text_at(json, {"finish_reason"}), "length");
  EXPECT_EQ(number_at(json, {"completion_tokens"}), 3);
  EXPECT_TRUE(std::string(kLantern).starts_with(text_at(json, {"text"})));
}

TEST(Run, LogitBiasForbidsAToken) {
  const JsonDocument plain = parsed(run_program(ask({"--json", "Define lantern."})).out);
  const std::int64_t first = at(plain, {"token_ids"}).as_array()->front().as_int64(0, 4095).value();
  const ProgramRun run = run_program(ask({"--json", "--logit-bias", std::to_string(first) + "=-1000", "Define lantern."}));
  EXPECT_NE(at(parsed(run.out), {"token_ids"}).as_array()->front().as_int64(0, 4095).value(), first);
}

// The guard names where a value went wrong, while reading the prompt and while answering.
TEST(Run, ABadValueEndsTheAnswerAndNamesItsPlace) {
  expect_error(ask({"--inject-nan", "5:1.attention", "Define lantern."}), 1,
               {"step 0", "position 11", "layer 1, attention", "--kernels scalar"});
  expect_error(ask({"--inject-nan", "5:2.feed-forward", "--chunk", "6", "--json", "Define lantern."}), 1,
               {"step 0", "position 5", "layer 2, feed-forward"});
  const ProgramRun run = run_program(ask({"--inject-nan", "14:3.feed-forward", "Define lantern."}));
  EXPECT_EQ(run.status, 1);
  EXPECT_TRUE(std::string(kLantern).starts_with(run.out) && !run.out.empty()) << run.out;
  for (const char* part : {"step 3", "position 14", "layer 3, feed-forward"}) EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
}

// A reader that goes away ends the program, as it does any other; nothing is printed about it.
TEST(Run, ABrokenPipeIsNoCrash) {
  const ProgramRun run = run_shell("$RECKONER run models/pocket -q --no-think 'Define lantern.' | head -c1; echo \" ${PIPESTATUS[0]}\"");
  EXPECT_TRUE(run.out == "l 141\n" || run.out == "l 0\n") << run.out;
  EXPECT_EQ(run.err, "");
}

TEST(Run, AFullDiskIsAnError) {
  const ProgramRun run = run_shell("$RECKONER run models/pocket -q --no-think 'Define lantern.' > /dev/full");
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("reckoner: error: cannot write to stdout: No space left on device"), std::string::npos) << run.err;
}

TEST(Chat, KeepsTheHistoryAndStartsAnew) {
  const ProgramRun run = run_on_terminal(ask({}), {{"> ", "Define lantern.\r"},
                                                   {"protective case", ""},
                                                   {"> ", "Define thorn.\r"},
                                                   {"> ", "/new\r"},
                                                   {"a new conversation", ""},
                                                   {"> ", "Define lantern.\r"},
                                                   {"protective case", ""},
                                                   {"> ", "/exit\r"}});
  EXPECT_EQ(run.status, 0) << run.out;
  // The first question and the first after /new come alone; the one between carries the first pair along.
  const std::size_t first = run.out.find("12 prompt tokens, ");
  ASSERT_NE(first, std::string::npos) << run.out;
  const std::size_t second = run.out.find(" prompt tokens, ", first + 18);
  ASSERT_NE(second, std::string::npos) << run.out;
  EXPECT_GT(std::atoi(run.out.c_str() + run.out.rfind(' ', second - 1)), 20) << run.out;
  EXPECT_NE(run.out.find("12 prompt tokens, ", second), std::string::npos) << run.out;
}

// --min-p is no cut here, but asks for sampling; without an end the answer goes on until it is stopped.
TEST(Chat, CtrlCStopsTheAnswerOnly) {
  const ProgramRun run = run_on_terminal(
      {"run", kModel, "--logit-bias", "4032=-1000", "--logit-bias", "4039=-1000", "--logit-bias", "4041=-1000", "--no-think"},
      {{"> ", "Define lantern.\r"}, {"protective", "\x03"}, {"interrupted", ""}, {"> ", "\x04"}});
  EXPECT_EQ(run.status, 0) << run.out;
}

TEST(Chat, ReasoningIsDimmedAndColoursCanBeSwitchedOff) {
  const std::vector<std::string> arguments = {"run", kModel, "Describe erupt as JSON."};
  const ProgramRun coloured = run_on_terminal(arguments, {});
  EXPECT_NE(coloured.out.find("\x1b[2mThe\x1b[0m"), std::string::npos) << coloured.out;
  setenv("NO_COLOR", "1", 1);
  const ProgramRun plain = run_on_terminal(arguments, {});
  unsetenv("NO_COLOR");
  EXPECT_EQ(plain.out.find('\x1b'), std::string::npos) << plain.out;
  EXPECT_NE(plain.out.find("(thinking) The word erupt"), std::string::npos) << plain.out;
}

TEST(Verify, PassesOnItsOwnReference) {
  const ProgramRun run =
      run_program({"verify", "tests/golden/glm_moe_dsa", "--reference", "tests/golden/glm_moe_dsa/reference.safetensors"});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_TRUE(run.out.ends_with("\nverify: PASS\n")) << run.out;
  for (const char* part : {"96/96", "embedding", "layer 2", "final norm", "all at once", "37 a step", "1 a step"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << " in " << run.out;
  }
}

TEST(Verify, JsonHasEveryLayer) {
  const ProgramRun run = run_program(
      {"verify", kModel, "--reference", "tests/data/pocket-golden.safetensors", "--chunk", "64", "--json", "--precision", "fast"});
  EXPECT_EQ(run.status, 0) << run.err;
  const JsonDocument json = parsed(run.out);
  EXPECT_TRUE(*at(json, {"passed"}).as_bool());
  const std::vector<JsonNode> cases = list_at(json, {"cases"});
  ASSERT_EQ(cases.size(), 4u);
  const std::vector<JsonNode> runs = cases[0].required("runs")->as_array().value();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].required("hidden")->as_array()->size(), 5u);
}

TEST(Verify, AnotherModelsReferenceFails) {
  expect_error({"verify", kModel, "--reference", "tests/golden/glm_moe_dsa/reference.safetensors"}, 1,
               {"tests/golden/glm_moe_dsa/reference.safetensors", "tensor 'logits'", "expected F32 [96, 4096], found F32 [96, 320]"});
  // Layers and sizes of this one fit; its numbers do not.
  const ProgramRun run =
      run_program({"verify", "tests/golden/glm_moe_dsa", "--reference", "tests/golden/glm_moe_dsa_shared/reference.safetensors"});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.out.find("\nverify: FAIL: case reference, all at once: largest logit error "), std::string::npos) << run.out << run.err;
}

TEST(Inspect, SaysWhatIsThereAndWhatItTakes) {
  const ProgramRun run = run_program({"inspect", kModel, "--context", "4096"});
  ASSERT_EQ(run.status, 0) << run.err;
  for (const char* part : {"glm_moe_dsa", "4: 1 dense, 3 with experts", "model.layers.{layer}.mlp.experts.{expert}.up_proj", "NVFP4",
                           "not loaded", "bits a parameter", "memory at a context of 4096 tokens", "workspace", "end-of-sequence tokens",
                           "MLA heads are qk_nope_head_dim"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << " in " << run.out;
  }
}

TEST(Inspect, JsonAddsUp) {
  const ProgramRun run = run_program({"inspect", kModel, "--json", "--tensors", "--precision", "exact"});
  const JsonDocument json = parsed(run.out);
  double bytes = 0;
  for (const JsonNode& group : list_at(json, {"weights"})) bytes += group.required("bytes")->as_float().value();
  EXPECT_EQ(bytes, number_at(json, {"bytes"}));
  EXPECT_EQ(number_at(json, {"memory", "cache_bytes_per_token"}), 4 * (512 + 64 + 128) * 4);
  EXPECT_EQ(number_at(json, {"memory", "total_bytes"}), number_at(json, {"memory", "weights_bytes"}) +
                                                            number_at(json, {"memory", "cache_bytes"}) +
                                                            number_at(json, {"memory", "workspace_bytes"}));
  double of_tensors = 0;
  for (const JsonNode& tensor : list_at(json, {"tensors"})) of_tensors += tensor.required("bytes")->as_float().value();
  // NVFP4 weights have scalars beside their bytes and scales, which the groups leave out.
  EXPECT_NEAR(of_tensors, bytes + number_at(json, {"not_loaded", "bytes"}), 4096);
}

TEST(Tokenize, ShowsIdsAndPieces) {
  const ProgramRun run = run_program({"tokenize", kModel, "Define lantern.\n"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("  \".\\n\"\n"), std::string::npos) << run.out;
  const JsonDocument json = parsed(run_program({"tokenize", kModel, "-", "--json"}, "<|user|>x").out);
  EXPECT_EQ(text_at(json, {"text"}), "<|user|>x");
  EXPECT_EQ(at(json, {"pieces"}).as_array()->front().as_string().value(), "<|user|>");
}

TEST(Tokenize, RendersTheTemplate) {
  const Scratch scratch;
  const std::string messages = scratch.write("messages.json", R"([{"role": "user", "content": "Define lantern."}])");
  const ProgramRun run = run_program({"tokenize", kModel, "--messages", messages, "--no-think"});
  EXPECT_EQ(run.out, "[gMASK]<sop><|user|>Define lantern.<|assistant|></think>\n") << run.err;
  const ProgramRun with_ids = run_program({"tokenize", kModel, "--messages", messages, "--ids"});
  EXPECT_NE(with_ids.out.find("\"[gMASK]\"\n"), std::string::npos) << with_ids.out;
  EXPECT_TRUE(with_ids.out.starts_with("[gMASK]<sop><|user|>Define lantern.<|assistant|><think>\n")) << with_ids.out;
}

}  // namespace
}  // namespace reckoner
