// reckoner bench serve: load for a server, and how it bore it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "loadgen/bench.h"

namespace reckoner {
namespace {

using loadgen::LoadOptions;
using loadgen::LoadProgress;
using loadgen::Metric;
using loadgen::Report;

constexpr const char* kDescription =
    "Sends load to any OpenAI-compatible server and measures what its users would have seen: time to\n"
    "first token, time per output token, gaps between tokens, throughput, goodput. Tokens are counted by\n"
    "the server. Exit status: 0 every request was completed, 1 some failed, 130 interrupted.\n"
    "docs/bench-serve.md says how each number is defined.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner bench serve http://127.0.0.1:8000\n"
    "  reckoner bench serve http://127.0.0.1:8000 --num-prompts 500 --request-rate 8 --html load.html\n"
    "  reckoner bench serve http://127.0.0.1:8000 --max-concurrency 64 --goodput ttft:500 tpot:50\n"
    "  reckoner bench serve http://127.0.0.1:8000 --dataset-name file --dataset-path chats.jsonl";

struct BenchFlags {
  LoadOptions load;
  std::string endpoint = "chat";
  std::string dataset = "random";
  std::string temperature = "0";
  std::vector<std::string> goodput;
  std::vector<std::string> metrics;
  std::string json_file;
  std::string html_file;
  bool detailed = false;
  bool quiet = false;
};

// Refuses what is no number, or none in the range that `allowed` describes.
CLI::Validator number_check(bool (*fits)(double), const char* allowed) {
  return CLI::Validator(
      [fits, allowed](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (!text.empty() && *end == '\0' && fits(value)) return std::string();
        return fmt::format("expected {}, found '{}'", allowed, text);
      },
      "");
}

bool is_positive(double value) { return value > 0; }
bool is_positive_finite(double value) { return value > 0 && std::isfinite(value); }
bool is_ratio(double value) { return value >= 0 && value < 1; }
bool is_percent(double value) { return value >= 0 && value <= 100; }

Result<Metric> metric_from(const std::string& text) {
  for (const Metric metric : loadgen::kMetrics) {
    if (text == name(metric)) return metric;
  }
  return Error{fmt::format("'{}' is no metric", text), "the metrics are ttft, tpot, itl, e2el"};
}

Result<loadgen::GoodputTarget> target_from(const std::string& text) {
  const std::size_t colon = text.find(':');
  const Metric metric = TRY(metric_from(text.substr(0, colon)));
  char* end = nullptr;
  const double value = colon == std::string::npos ? 0 : std::strtod(text.c_str() + colon + 1, &end);
  if (end == nullptr || *end != '\0' || !is_positive_finite(value)) {
    return Error{fmt::format("--goodput: expected METRIC:MILLISECONDS, found '{}'", text), "write it as ttft:200"};
  }
  return loadgen::GoodputTarget{.metric = metric, .at_most_ms = value};
}

std::string key_from_environment() {
  for (const char* variable : {"OPENAI_API_KEY", "RECKONER_API_KEY"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

// What the parser could not check.
Result<LoadOptions> load_options(const BenchFlags& flags) {
  LoadOptions options = flags.load;
  options.api = flags.endpoint == "chat" ? loadgen::Api::chat : loadgen::Api::completions;
  options.dataset = flags.dataset == "file"     ? loadgen::DatasetKind::file
                    : flags.dataset == "random" ? loadgen::DatasetKind::random
                                                : loadgen::DatasetKind::shared_prefix;
  if (options.dataset == loadgen::DatasetKind::file && options.dataset_path.empty()) {
    return Error{"--dataset-name file needs a file", "name it with --dataset-path"};
  }
  if (options.dataset != loadgen::DatasetKind::file && !options.dataset_path.empty()) {
    return Error{"--dataset-path has no effect without --dataset-name file", "add --dataset-name file, or leave it out"};
  }
  if (flags.temperature == "server") options.temperature.reset();
  if (flags.temperature != "server") options.temperature = std::strtod(flags.temperature.c_str(), nullptr);
  if (options.api_key.empty()) options.api_key = key_from_environment();
  for (const char c : options.api_key) {
    if (c <= 0x20 || c == 0x7F) return Error{"the API key holds a blank or a control character", "give the key alone"};
  }
  for (const std::string& text : flags.goodput) options.goodput.push_back(TRY(target_from(text)));
  if (!flags.metrics.empty()) options.metrics.clear();
  for (const std::string& text : flags.metrics) options.metrics.push_back(TRY(metric_from(text)));
  return options;
}

// Before the load: it would be a pity to lose its numbers. What the file holds stays until there is something better.
Status check_output(const std::string& path) {
  if (path.empty()) return {};
  const bool is_new = !std::filesystem::exists(path);
  if (!std::ofstream(path, std::ios::binary | std::ios::app)) return cannot_write(path);
  if (is_new) std::filesystem::remove(path);
  return {};
}

// A bar on a terminal, else a line every ten seconds.
class LoadDisplay {
 public:
  explicit LoadDisplay(Console& console) : console_(console), bar_(console, "load") {}

  void show(const LoadProgress& progress) {
    const std::string failed = progress.failed > 0 ? fmt::format(", {} FAILED", progress.failed) : "";
    bar_.show_count(progress.ended, progress.total, fmt::format("requests, {} running{}", progress.running, failed));
    const auto now = std::chrono::steady_clock::now();
    if (console_.stderr_is_terminal() || now < next_line_) return;
    next_line_ = now + kLines;
    console_.note(fmt::format("{} of {} requests ended, {} running{}", progress.ended, progress.total, progress.running, failed));
  }
  void clear() { bar_.clear(); }

 private:
  static constexpr auto kLines = std::chrono::seconds(10);
  Console& console_;
  ProgressBar bar_;
  std::chrono::steady_clock::time_point next_line_ = std::chrono::steady_clock::now() + kLines;
};

Error failed_requests(const loadgen::Summary& summary) {
  std::string what = fmt::format("{} of {} requests failed:", summary.failed, summary.planned);
  for (const loadgen::FailureGroup& group : summary.failures) what += fmt::format("\n  {} x {}", group.count, failure_text(group.example));
  return Error{what, "look at the server's log; the numbers are of the completed requests only"};
}

Result<int> bench_serve(const BenchFlags& flags, Console& console) {
  if (flags.quiet) console.be_quiet();
  const Result<LoadOptions> options = load_options(flags);
  if (!options) {
    console.error(options.error());
    return kExitUsage;
  }
  TRY(check_output(flags.json_file));
  TRY(check_output(flags.html_file));
  const InterruptGuard interrupt;
  LoadDisplay display(console);
  const loadgen::BenchHooks hooks = {.load = {.progress = [&](const LoadProgress& progress) { display.show(progress); },
                                              .interrupted = [&] { return interrupt.interrupted(); }},
                                     .note = [&](const std::string& text) { console.note(text); }};
  const Result<Report> report = bench_server(*options, hooks);
  display.clear();
  if (!report) return report.error();
  TRY(console.print(result_text(*report)));
  const auto detail = flags.detailed ? loadgen::Detail::texts : loadgen::Detail::numbers;
  if (!flags.json_file.empty()) TRY(write_file(flags.json_file, result_json(*report, detail), console));
  if (!flags.html_file.empty()) TRY(write_file(flags.html_file, result_html(*report), console));
  if (report->result.interrupted) {
    console.note("interrupted");
    return kExitInterrupted;
  }
  if (report->summary.failed == 0) return 0;
  console.error(failed_requests(report->summary));
  return kExitFailed;
}

void add_server_options(CLI::App& app, BenchFlags& flags) {
  app.add_option("URL", flags.load.url, "The server, as http://127.0.0.1:8000")->required()->option_text(" ");
  accept_only(app.add_option("--endpoint", flags.endpoint, "chat: /v1/chat/completions; completions: /v1/completions\n(default: chat)")
                  ->transform([](std::string text) {
                    if (text == "/v1/chat/completions") return std::string("chat");
                    return text == "/v1/completions" ? std::string("completions") : text;
                  })
                  ->option_text("chat|completions")
                  ->group("Server"),
              {"chat", "completions"});
  app.add_option("--model", flags.load.model, "The model's name (default: the first one that the server lists)")
      ->option_text("NAME")
      ->group("Server");
  app.add_option("--api-key", flags.load.api_key, "The server's key (default: OPENAI_API_KEY or RECKONER_API_KEY,\nif set)")
      ->option_text("KEY")
      ->group("Server");
  app.add_option("--timeout", flags.load.timeout_s, "Seconds without a byte after which a request has failed\n(default: 600)")
      ->check(number_check(is_positive_finite, "a number above 0"))
      ->option_text("S")
      ->group("Server");
  app.add_flag("--insecure", flags.load.trust_any_certificate, "HTTPS: take any certificate")->group("Server");
}

void add_dataset_options(CLI::App& app, BenchFlags& flags) {
  const auto count = [&](const char* name, std::int64_t& value, const std::string& about, std::int64_t low) {
    accept_range(app.add_option(name, value, about)->group("Requests"), low, std::int64_t{1} << 30);
  };
  accept_only(app.add_option("--dataset-name", flags.dataset, "What is asked (default: random)")
                  ->option_text("random|shared-prefix|file")
                  ->group("Requests"),
              {"random", "shared-prefix", "file"});
  app.add_option("--dataset-path", flags.load.dataset_path,
                 "JSON lines: {\"prompt\": ...} or {\"messages\": [...]}, with\n\"output_tokens\" if it should not be --random-output-len")
      ->option_text("FILE")
      ->group("Requests");
  count("--num-prompts", flags.load.num_prompts, "Requests (default: 100, or the lines of the file)", 1);
  count("--random-input-len", flags.load.input_tokens, "Tokens of a prompt (default: 1024)", 1);
  count("--random-output-len", flags.load.output_tokens, "Tokens of an answer at most (default: 128)", 1);
  app.add_option("--random-range-ratio", flags.load.range_ratio, "Draw lengths from [len (1 - R), len (1 + R)] (default: 0)")
      ->check(number_check(is_ratio, "a number from 0 to below 1"))
      ->option_text("R")
      ->group("Requests");
  count("--prefix-len", flags.load.prefix_tokens, "shared-prefix: tokens of a shared beginning, before the\nprompt (default: 256)", 1);
  count("--num-prefixes", flags.load.num_prefixes, "shared-prefix: different beginnings (default: 10)", 1);
  app.add_flag("--ignore-eos", flags.load.ignore_eos, "Ask for answers of the full length")->group("Requests");
  app.add_option("--temperature", flags.temperature, "Temperature, or `server` for the server's default (default: 0)")
      ->check(CLI::Validator(
          [](std::string& text) {
            return text == "server"
                       ? std::string()
                       : number_check([](double value) { return value >= 0 && value <= 100; }, "`server` or a number from 0 to 100")(text);
          },
          ""))
      ->option_text("T")
      ->group("Requests");
  app.add_option("--seed", flags.load.seed, "The same seed sends the same load (default: 0)")->option_text("N")->group("Requests");
}

void add_traffic_options(CLI::App& app, BenchFlags& flags) {
  app.add_option("--request-rate", flags.load.request_rate, "Requests a second, or inf: all at once (default: inf)")
      ->check(number_check(is_positive, "a number above 0, or inf"))
      ->option_text("R")
      ->group("Traffic");
  app.add_option("--burstiness", flags.load.burstiness,
                 "Shape of the gamma distribution of gaps; 1: Poisson, less:\nbursts, more: even (default: 1)")
      ->check(number_check(is_positive_finite, "a number above 0"))
      ->option_text("B")
      ->group("Traffic");
  accept_range(app.add_option("--max-concurrency", flags.load.max_concurrency, "Requests that run at a time at most (default: no limit)")
                   ->group("Traffic"),
               1, 1 << 20);
  accept_range(
      app.add_option("--num-warmups,--warmups", flags.load.warmups, "Requests before the measured ones (default: 0)")->group("Traffic"), 0,
      1 << 20);
}

void add_output_options(CLI::App& app, BenchFlags& flags) {
  app.add_option("--goodput", flags.goodput, "What a good request keeps to, in ms: ttft:200 tpot:50 e2el:3000")
      ->option_text("METRIC:MS ...")
      ->group("Output");
  app.add_option("--percentile-metrics", flags.metrics, "Which latencies to report (default: ttft,tpot,itl,e2el)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("LIST")
      ->group("Output");
  app.add_option("--metric-percentiles", flags.load.percentiles, "Which percentiles (default: 50,90,99)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number_check(is_percent, "a number from 0 to 100"))
      ->option_text("LIST")
      ->group("Output");
  app.add_option("--save-result", flags.json_file, "Write the result as JSON, with vLLM's field names")
      ->option_text("FILE")
      ->group("Output");
  app.add_flag("--save-detailed", flags.detailed, "Keep the answers' texts in it")->group("Output");
  app.add_option("--html", flags.html_file, "Write a report with plots")->option_text("FILE")->group("Output");
  app.add_flag("-q,--quiet", flags.quiet, "Print nothing but the result and errors")->group("Output");
}

Action add_bench(CLI::App& app) {
  const auto flags = std::make_shared<BenchFlags>();
  app.description("Measures a server from outside, as its users see it.");
  app.footer("`reckoner bench serve --help` lists the options.");
  app.require_subcommand(1);
  CLI::App* const serve = app.add_subcommand("serve", "Send load to an OpenAI-compatible server");
  serve->group("Commands");
  serve->description(kDescription);
  serve->footer(kExamples);
  add_server_options(*serve, *flags);
  add_dataset_options(*serve, *flags);
  add_traffic_options(*serve, *flags);
  add_output_options(*serve, *flags);
  return [flags](Console& console) { return bench_serve(*flags, console); };
}

}  // namespace

const Subcommand kBench = {.name = "bench",
                           .summary = "Send load to a server and measure how it bears it",
                           .example = "reckoner bench serve http://127.0.0.1:8000",
                           .add = add_bench};

}  // namespace reckoner
