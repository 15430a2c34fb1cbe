// What the program says when it is asked for help, or for something that cannot be.
#include "cli_support.h"

namespace reckoner {
namespace {

TEST(Help, IsThereForEverything) {
  const ProgramRun help = run_program({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"run", "verify", "inspect", "lint", "tokenize"}) {
    EXPECT_NE(help.out.find(std::string("  ") + command), std::string::npos) << help.out;
    const ProgramRun of_command = run_program({command, "--help"});
    EXPECT_EQ(of_command.status, 0);
    EXPECT_NE(of_command.out.find("Examples:\n  reckoner " + std::string(command)), std::string::npos) << of_command.out;
    EXPECT_EQ(of_command.out.find("--inject-nan"), std::string::npos);
  }
  EXPECT_TRUE(run_program({"--version"}).out.starts_with("reckoner 0."));
  const ProgramRun nothing = run_program({});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_EQ(nothing.err, help.out);
}

TEST(Errors, OfUseHaveStatusTwo) {
  expect_error({"rnu"}, 2, {"there is no command 'rnu'", "did you mean `reckoner run`?"});
  expect_error({"--verison"}, 2, {"unknown option '--verison'", "did you mean --version?"});
  expect_error({"run"}, 2, {"MODEL is required", "reckoner run --help"});
  expect_error({"run", kModel, "x", "--temprature", "1"}, 2, {"unknown option '--temprature'", "did you mean --temperature?"});
  expect_error({"run", kModel, "Define", "lantern."}, 2, {"unexpected argument 'lantern.'", "quotes"});
  expect_error({"run", kModel, "x", "--threads", "many"}, 2, {"--threads", "from 1 to 1024", "'many'"});
  expect_error({"run", kModel, "x", "--precision", "exakt"}, 2, {"--precision", "exact, fast", "'exakt'"});
  expect_error({"run", kModel, "x", "--greedy", "--top-k", "4"}, 2, {"--greedy cannot go with --top-k"});
  expect_error({"run", kModel, "x", "--seed", "-4"}, 2, {"--seed", "'-4'"});
  expect_error({"run", kModel, "x", "--tools"}, 2, {"--tools needs a value"});
  expect_error({"verify", kModel}, 2, {"--reference is required"});
}

TEST(Errors, OfInputNameItAndTheRemedy) {
  expect_error({"run", "no/such/folder", "x"}, 1, {"no/such/folder", "there is no such folder"});
  expect_error({"run", kModel}, 1, {"the prompt is empty"});
  expect_error({"run", kModel, "\xFF"}, 1, {"the prompt is not UTF-8"});
  expect_error({"run", kModel, "x", "--temperature", "-1"}, 1, {"temperature", "from 0 to 100", "-1"});
  expect_error({"run", kModel, "x", "--top-p", "0"}, 1, {"top_p", "above 0"});
  expect_error({"run", kModel, "x", "--logit-bias", "5"}, 1, {"--logit-bias", "ID=BIAS", "'5'"});
  expect_error({"run", kModel, "x", "--logit-bias", "9999=1"}, 1, {"9999", "4096"});
  expect_error({"run", kModel, "x", "--context", "9000"}, 1, {"9000", "8192"});
  expect_error({"run", kModel, "x", "--context", "64", "--max-tokens", "64"}, 1, {"max_tokens", "64"});
  expect_error({"run", kModel, "x", "--template-vars", "{"}, 1, {"--template-vars", "JSON"});
  expect_error({"run", kModel, "x", "--inject-nan", "5:9.attention"}, 1, {"--inject-nan", "3.feed-forward"});
  expect_error({"run", "tests/golden/glm_moe_dsa", "x"}, 1, {"tokenizer.json"});
  expect_error({"verify", kModel, "--reference", "models/pocket/config.json"}, 1, {"models/pocket/config.json"});
  expect_error({"tokenize", kModel, "--messages", "models/pocket/config.json"}, 1, {"expected a JSON array"});
}

TEST(Errors, OfToolsAndTemplatesNameTheFile) {
  const Scratch scratch;
  const std::string tools = scratch.write("tools.json", "[{\"type\": \"function\",}]");
  expect_error({"run", kModel, "x", "--tools", tools}, 1, {tools, "line 1"});
  const std::string model = scratch.copy_of_model();
  scratch.replace("chat_template.jinja", "{% for message in messages %}\n{{ message.content }\n{% endfor %}");
  expect_error({"run", model, "x"}, 1, {"chat_template.jinja"});
}

// Files are damaged in every way that a download can be; what is wrong is said before anything runs.
TEST(Errors, OfCheckpointsNameTheTensor) {
  const Scratch scratch;
  const std::string model = scratch.copy_of_model();
  fs::remove(fs::path(model) / "model-00002-of-00003.safetensors");
  expect_error({"inspect", model}, 1, {"model-00002-of-00003.safetensors"});
}

}  // namespace
}  // namespace reckoner
