// reckoner run: answers a prompt, or chats.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <random>

#include "cli/bad_step.h"
#include "cli/runner.h"

namespace reckoner {
namespace {

constexpr const char* kDescription =
    "Answers PROMPT once, or chats when there is none and stdin is a terminal. A PROMPT of - (or a\n"
    "pipe without PROMPT) is read from stdin; a newline at its end is dropped. The answer goes to\n"
    "stdout as it comes, everything else to stderr. Answers are greedy, and so always the same,\n"
    "unless a sampling option is given; what is then not given comes from generation_config.json.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner run models/pocket\n"
    "  reckoner run models/pocket --no-think \"Define lantern.\"\n"
    "  reckoner run models/pocket --temperature 0.7 --seed 1 --json \"Define lantern.\"\n"
    "  echo \"Define lantern.\" | reckoner run models/pocket --no-think > answer.txt";

void add_prompt_options(CLI::App& app, RunOptions& options) {
  app.add_option("PROMPT", options.prompt, "The question; - reads it from stdin")->option_text(" ");
  CLI::Option* const raw =
      app.add_flag("--raw", options.raw, "Use PROMPT as it is, without the chat template")->option_text(" ")->group("Prompt");
  raw->excludes(
      app.add_option("--system", options.system, "A system message before the conversation")->option_text("TEXT")->group("Prompt"));
  add_template_options(app, options.chat_template);
  for (const char* name : {"--tools", "--no-think", "--template-vars"}) raw->excludes(app.get_option(name));
}

void add_answer_options(CLI::App& app, RunOptions& options) {
  accept_range(
      app.add_option("--max-tokens", options.max_tokens, "Longest answer, in tokens (default: what the context holds)")->group("Answer"), 1,
      std::int64_t{1} << 30);
  app.add_option("--stop", options.stop, "End the answer before this text; may be repeated")
      ->option_text("TEXT")
      ->allow_extra_args(false)
      ->group("Answer");
  app.add_flag("--show-special", options.show_special, "Show special tokens such as <|user|>")->group("Answer");
  app.add_flag("--json", options.json, "Print one JSON object: text, reasoning, token ids, why it\nended, timings, settings")
      ->group("Answer");
  app.add_flag("-v,--verbose", options.verbose, "Print what was asked for, what took effect, and why")->group("Answer");
  app.add_flag("-q,--quiet", options.quiet, "Print nothing but the answer and errors")->group("Answer");
}

Action add_run(CLI::App& app) {
  const auto options = std::make_shared<RunOptions>();
  app.description(kDescription);
  app.footer(kExamples);
  add_model_argument(app, options->model);
  add_prompt_options(app, *options);
  add_answer_options(app, *options);
  add_sampling_options(app, options->sampling);
  add_machine_options(app, options->machine);
  add_device_options(app, options->machine);
  add_context_option(app, options->limits);
  accept_range(app.add_option("--chunk", options->limits.chunk, "Prompt tokens a step (default: 512)")->group("Machine"), 2, 65536);
  add_trace_dir_option(app, options->trace_dir);
  app.add_option("--inject-nan", options->inject_nan)->group("");  // hidden: proves that the guard works
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace

const Subcommand kRun = {.name = "run",
                         .summary = "Chat with a model, or answer one prompt",
                         .example = "reckoner run models/pocket --no-think \"Define lantern.\"",
                         .add = add_run};

}  // namespace reckoner
