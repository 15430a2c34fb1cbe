// reckoner compare: what a model lost (or not) against another one, over a text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>

#include "base/mapped_file.h"
#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/text_format.h"
#include "diagnose/compare/compare.h"
#include "kernels/cpu/catalogue.h"
#include "text/tokenizer.h"

namespace reckoner {
namespace {

namespace json = boost::json;

constexpr const char* kDescription =
    "Runs two models with the same vocabulary over a text and says how far B's predictions of the next\n"
    "token are from A's: the KL divergence at every position, how often both have the same most\n"
    "probable token, and the perplexity of both. A is the reference, B for example A quantised.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner compare glm-5 glm-5-nvfp4 --text book.txt\n"
    "  reckoner compare models/pocket pocket-int4 --text README.md --precision exact --json";

struct CompareOptions {
  std::string a;
  std::string b;
  std::string text;
  std::int64_t window = 512;
  std::int64_t max_tokens = 16384;
  bool json = false;
  MachineOptions machine;
};

// The text as tokens of A, which must be B's too.
Result<std::vector<std::int32_t>> read_tokens(const CompareOptions& options, const Session& a, const Session& b) {
  const std::int64_t vocab = a.model->config.vocab_size;
  if (b.model->config.vocab_size != vocab) {
    return Error{fmt::format("{} has a vocabulary of {} tokens, {} of {}", a.name, vocab, b.name, b.model->config.vocab_size),
                 "only models with the same vocabulary can be compared"};
  }
  const Tokenizer tokenizer_a = TRY(Tokenizer::load(a.folder));
  const Tokenizer tokenizer_b = TRY(Tokenizer::load(b.folder));
  const std::string text = TRY(read_text_file(options.text, std::int64_t{1} << 30));
  const std::vector<TokenId> ids = TRY(tokenizer_a.encode(text));
  const std::vector<TokenId> ids_b = TRY(tokenizer_b.encode(text));
  if (ids != ids_b || tokenizer_a.vocab_size() != tokenizer_b.vocab_size()) {
    return Error{fmt::format("{} and {} have different tokenizers: the text is not the same tokens in both", a.name, b.name),
                 "only models with the same vocabulary can be compared"};
  }
  const std::size_t count = std::min(ids.size(), static_cast<std::size_t>(options.max_tokens));
  if (count < 2) return Error{fmt::format("{}: expected at least two tokens of text, found {}", options.text, count), "give a longer text"};
  for (const TokenId id : ids) {
    if (static_cast<std::int64_t>(id) >= vocab)
      return Error{fmt::format("{}: the tokenizer gives token {}, the model has {}", a.name, id, vocab),
                   "tokenizer and model do not belong together"};
  }
  return std::vector<std::int32_t>(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
}

std::string report_text(const CompareOptions& options, const CompareReport& report) {
  std::string text = fmt::format("{} (B) against {} (A), {} tokens of {} in windows of {}, {}\n", options.b, options.a, report.positions,
                                 options.text, options.window, options.machine.precision);
  text += fmt::format("  {:<24}{:>12}{:>12}{:>12}{:>12}\n", "", "mean", "median", "p99", "max");
  text += fmt::format("  {:<24}{:>12.3e}{:>12.3e}{:>12.3e}{:>12.3e}\n", "KL divergence, nats", report.kl_mean, report.kl_median,
                      report.kl_p99, report.kl_max);
  text += fmt::format("  {:<24}{:>10.2f} %\n", "same most probable token", 100 * report.top_agreement);
  text +=
      fmt::format("  {:<24}{:>12.4f}\n  {:<24}{:>12.4f}\n", "perplexity of A", report.perplexity_a, "perplexity of B", report.perplexity_b);
  return text;
}

std::string report_json(const CompareOptions& options, const Session& session, const CompareReport& report) {
  const json::object object{
      {"a", options.a},
      {"b", options.b},
      {"text", options.text},
      {"tokens", report.positions},
      {"windows", report.windows},
      {"window", options.window},
      {"precision", session.precision_name},
      {"kernels", session.kernels},
      {"kl_nats", {{"mean", report.kl_mean}, {"median", report.kl_median}, {"p99", report.kl_p99}, {"max", report.kl_max}}},
      {"top_agreement", report.top_agreement},
      {"perplexity_a", report.perplexity_a},
      {"perplexity_b", report.perplexity_b}};
  return json::serialize(object) + "\n";
}

StepRunner runner_for(const Session& session, std::int64_t window) {
  constexpr std::int64_t kStep = 128;  // rows whose logits are in memory at a time
  const std::int64_t step = std::min(window, kStep);
  return StepRunner(*session.model, cpu_catalogue(), session.device, *session.pool, session.precision,
                    {.max_tokens = step, .max_samples = step, .max_context = window});
}

Result<int> compare_models(const CompareOptions& options, Console& console) {
  Session a = TRY(open_session(options.a, options.machine, console));
  Session b = TRY(open_session(options.b, options.machine, console));
  const std::vector<std::int32_t> tokens = TRY(read_tokens(options, a, b));
  for (Session* session : {&a, &b}) {
    const double seconds = TRY(load_weights(*session, console));
    console.note(fmt::format("{}: {} of weights in {}; {} kernels, {}", session->name,
                             bytes_text(static_cast<double>(session->model->weight_bytes)), seconds_text(seconds), session->kernels,
                             session->precision_name));
  }
  StepRunner runner_a = runner_for(a, options.window);
  StepRunner runner_b = runner_for(b, options.window);
  const InterruptGuard interrupt;
  ProgressBar bar(console, "comparing");
  const Result<CompareReport> report =
      compare(runner_a, runner_b, tokens, options.window,
              {.progress = [&](std::int64_t done, std::int64_t total) { bar.show_count(done, total, "tokens"); },
               .interrupted = [&] { return interrupt.interrupted(); }});
  bar.clear();
  if (!report && interrupt.interrupted()) return kExitInterrupted;
  if (!report) return report.error();
  TRY(console.print(options.json ? report_json(options, a, *report) : report_text(options, *report)));
  return 0;
}

Action add_compare(CLI::App& app) {
  const auto options = std::make_shared<CompareOptions>();
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("A", options->a, "The model that counts as right")->required()->option_text(" ");
  app.add_option("B", options->b, "The model to judge")->required()->option_text(" ");
  app.add_option("--text", options->text, "A text in UTF-8")->required()->option_text("FILE (required)")->group("Comparison");
  accept_range(app.add_option("--window", options->window, "Tokens that the models see at a time (default: 512)")->group("Comparison"), 2,
               65536);
  accept_range(
      app.add_option("--max-tokens", options->max_tokens, "Read at most so many tokens of the text (default: 16384)")->group("Comparison"),
      2, std::int64_t{1} << 40);
  app.add_flag("--json", options->json, "Print one JSON object")->group("Comparison");
  add_machine_options(app, options->machine);
  return [options](Console& console) { return compare_models(*options, console); };
}

}  // namespace

const Subcommand kCompare = {.name = "compare",
                             .summary = "Say how far a model's predictions are from another's",
                             .example = "reckoner compare MODEL QUANTISED --text FILE",
                             .add = add_compare};

}  // namespace reckoner
