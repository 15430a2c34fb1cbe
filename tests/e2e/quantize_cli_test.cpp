// quantize, compare and verify --dequantised, as a user runs them.
#include "cli_support.h"

namespace reckoner {
namespace {

constexpr const char* kGolden = "tests/golden/glm_moe_dsa";

TEST(QuantizeCommand, WritesAModelThatRunsAndCanBeVerified) {
  const Scratch scratch;
  const std::string out = scratch.write("x", "") + "-out";
  const ProgramRun run = run_program({"quantize", kModel, out, "--format", "fp8-channel", "--modules", "mlp", "--shard-size", "0.004"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, out + "\n");
  for (const char* part : {"matrices become FP8 channel", "quantising twice", "the MTP layer", "quantised in"})
    EXPECT_NE(run.err.find(part), std::string::npos) << "wanted '" << part << "' in: " << run.err;
  const ProgramRun answer = run_program({"run", out, "--no-think", "Define lantern."});
  EXPECT_EQ(answer.out, std::string(kLantern) + "\n") << answer.err;

  // The same again has nothing to do; another format does not go into the same folder.
  const ProgramRun again = run_program({"quantize", kModel, out, "--format", "fp8-channel", "--modules", "mlp", "--shard-size", "0.004"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.err.find("were there already"), std::string::npos) << again.err;
  expect_error({"quantize", kModel, out, "--format", "nvfp4"}, 1, {"holds the output of another command"});

  const JsonDocument same = parsed(run_program({"compare", out, out, "--text", "README.md", "--max-tokens", "300", "--json"}).out);
  EXPECT_EQ(number_at(same, {"kl_nats", "max"}), 0);
  EXPECT_EQ(number_at(same, {"top_agreement"}), 1);
  EXPECT_EQ(number_at(same, {"tokens"}), 300);
  const JsonDocument other =
      parsed(run_program({"compare", kModel, out, "--text", "README.md", "--max-tokens", "300", "--window", "100", "--json"}).out);
  EXPECT_EQ(number_at(other, {"windows"}), 3);
  EXPECT_GT(number_at(other, {"kl_nats", "mean"}), 0);
  EXPECT_LE(number_at(other, {"kl_nats", "median"}), number_at(other, {"kl_nats", "p99"}));
  EXPECT_LE(number_at(other, {"kl_nats", "p99"}), number_at(other, {"kl_nats", "max"}));
}

TEST(QuantizeCommand, DequantisedReferencePassesAndCatchesADamagedModel) {
  const Scratch scratch;
  const std::string out = scratch.write("x", "") + "-out";
  ASSERT_EQ(run_program({"quantize", kGolden, out, "--format", "int4-g32", "--modules", "all"}).status, 0);
  const ProgramRun run = run_program({"verify", out, "--dequantised", "--chunk", "0"});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("verify: PASS"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("random tokens, seed 1: 96 tokens"), std::string::npos) << run.out;
  const JsonDocument seeded = parsed(run_program({"verify", out, "--dequantised", "--seed", "7", "--chunk", "0", "--json"}).out);
  EXPECT_EQ(text_at(seeded, {"reference"}), "dequantised");
  EXPECT_TRUE(at(seeded, {"passed"}).as_bool().value());
}

TEST(QuantizeCommand, MistakesAreUsageErrors) {
  expect_error({"quantize", kModel}, 2, {"OUT is required"});
  expect_error({"quantize", kModel, "x"}, 2, {"--format is required"});
  expect_error({"quantize", kModel, "x", "--format", "fp4"}, 2, {"nvfp4, fp8-block, fp8-channel, int4-g32, mxfp4", "'fp4'"});
  expect_error({"quantize", kModel, "x", "--format", "nvfp4", "--modules", "everything"}, 2, {"experts, mlp, all"});
  expect_error({"quantize", "no/model", "x", "--format", "nvfp4"}, 1, {"no/model"});
  expect_error({"quantize", kModel, kModel, "--format", "nvfp4"}, 1, {"the model's own folder"});
  expect_error({"verify", kModel, "--dequantised", "--reference", "x"}, 2, {"--dequantised"});
  expect_error({"compare", kModel, kModel}, 2, {"--text is required"});
  expect_error({"compare", kModel, kModel, "--text", "no.txt"}, 1, {"no.txt"});
}

TEST(CompareCommand, NeedsTheSameVocabulary) {
  const Scratch scratch;
  const std::string text = scratch.write("text.txt", "Define lantern.");
  expect_error({"compare", kModel, kGolden, "--text", text}, 1, {"has a vocabulary of 4096 tokens", "of 320"});
  const std::string empty = scratch.write("empty.txt", "");
  expect_error({"compare", kModel, kModel, "--text", empty}, 1, {"expected at least two tokens of text, found 0"});
}

}  // namespace
}  // namespace reckoner
