// reckoner quantize: another checkpoint of the same model, with weights in fewer bits.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>

#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/text_format.h"
#include "convert/quantise.h"
#include "formats/model_folder.h"

namespace reckoner {
namespace {

constexpr const char* kDescription =
    "Writes the model once more, with its matrices in a smaller format, as a checkpoint in the published\n"
    "layout of that format. Memory stays below 2 GB however large the model is. Interrupted or out of\n"
    "space, the same command goes on with the file where it stopped. docs/quantize.md says more.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner quantize zai-org/GLM-5 glm-5-nvfp4 --format nvfp4\n"
    "  reckoner quantize models/pocket pocket-int4 --format int4-g32 --modules mlp\n"
    "  reckoner verify pocket-int4 --dequantised";

struct QuantizeOptions {
  std::string model;
  std::string out;
  std::string format;
  std::string modules = "experts";
  double shard_gb = 5;
  std::int64_t threads = 0;
};

QuantiseOptions convert_options(const QuantizeOptions& options) {
  QuantiseOptions converted{.modules = options.modules == "experts" ? ModuleSet::experts
                                       : options.modules == "mlp"   ? ModuleSet::mlp
                                                                    : ModuleSet::all,
                            .shard_bytes = std::llround(options.shard_gb * 1e9)};
  for (const QuantiseFormatName& entry : quantise_formats()) {
    if (entry.name == options.format) converted.format = entry.format;
  }
  return converted;
}

std::string summary(const QuantisePlan& plan, const std::string& out) {
  return fmt::format("{} of {} matrices become {}: {} -> {} in {} {}, {}", plan.quantised.size(),
                     plan.quantised.size() + plan.unquantised.size(), info(plan.options.format).name,
                     bytes_text(static_cast<double>(plan.source_bytes)), bytes_text(static_cast<double>(plan.output_bytes)),
                     plan.shards.size(), plan.shards.size() == 1 ? "file" : "files", out);
}

Result<int> quantize(const QuantizeOptions& options, Console& console) {
  const std::filesystem::path folder = TRY(resolve_model(options.model));
  const std::unique_ptr<Model> model = TRY(open_model(folder));
  const QuantisePlan plan = TRY(plan_quantisation(*model, convert_options(options)));
  TRY(prepare_output(*model, plan, options.out));
  console.note(summary(plan, options.out));
  for (const std::string& note : plan.notes) console.note("note: " + note);
  ThreadPool pool(static_cast<int>(options.threads > 0 ? options.threads : usable_cores()));
  const InterruptGuard interrupt;
  QuantiseReport report;
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar(console, "quantising");
    report = TRY(quantise(*model, plan, options.out, pool,
                          {.progress = [&](std::int64_t done, std::int64_t total) { bar.show_bytes(done, total); },
                           .interrupted = [&] { return interrupt.interrupted(); }}));
  }
  if (report.interrupted) {
    console.note("interrupted; the same command goes on where this one stopped");
    return kExitInterrupted;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (report.shards_kept > 0)
    console.note(fmt::format("{} of {} files were there already from an earlier run", report.shards_kept, plan.shards.size()));
  console.note(fmt::format("{} read and quantised in {}", bytes_text(static_cast<double>(report.source_bytes)), seconds_text(seconds)));
  TRY(console.print(options.out + "\n"));
  return 0;
}

Action add_quantize(CLI::App& app) {
  const auto options = std::make_shared<QuantizeOptions>();
  app.description(kDescription);
  app.footer(kExamples);
  add_model_argument(app, options->model);
  app.add_option("OUT", options->out, "The folder to write; new, empty, or of the same command before")->required()->option_text(" ");
  accept_only(
      app.add_option("--format", options->format, "What the matrices become (required): nvfp4, fp8-block,\nfp8-channel, int4-g32, mxfp4")
          ->required()
          ->option_text("FORMAT")
          ->group("Output"),
      {"nvfp4", "fp8-block", "fp8-channel", "int4-g32", "mxfp4"});
  accept_only(
      app.add_option(
             "--modules", options->modules,
             "experts: the routed ones; mlp: shared experts and dense layers\ntoo; all: attention and indexer too (default: experts)")
          ->option_text("SET")
          ->group("Output"),
      {"experts", "mlp", "all"});
  app.add_option("--shard-size", options->shard_gb, "About so many GB in a file (default: 5)")
      ->check(CLI::Range(0.000001, 1000000.0))
      ->option_text("GB")
      ->group("Output");
  accept_range(app.add_option("--threads", options->threads, "Threads (default: the cores that may be used)")->group("Machine"), 1, 1024);
  return [options](Console& console) { return quantize(*options, console); };
}

}  // namespace

const Subcommand kQuantize = {.name = "quantize",
                              .summary = "Write a model's weights in fewer bits",
                              .example = "reckoner quantize MODEL OUT --format nvfp4",
                              .add = add_quantize};

}  // namespace reckoner
