// reckoner lint: what is wrong, doubtful or odd about a checkpoint.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/command_line.h"
#include "cli/lint_report.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "formats/model_folder.h"

namespace reckoner {
namespace {

constexpr const char* kDescription =
    "Looks for what is wrong, doubtful or odd about a checkpoint: damaged files, metadata that contradicts\n"
    "the tensors, scales that cannot be right, settings that servers read differently. Reads headers, all\n"
    "tensor-wide scales and a bounded sample of the rest, and goes on when a part cannot be read.\n"
    "Exit status: 0 nothing wrong (notes at most), 1 warnings or errors, 2 no model.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner lint models/pocket\n"
    "  reckoner lint models/pocket --deep\n"
    "  reckoner lint zai-org/GLM-5.2-FP8 --hash\n"
    "  reckoner lint models/pocket --json";

constexpr int kExitFindings = 1;
constexpr int kExitNoModel = 2;

struct LintFlags {
  std::string model;
  bool deep = false;
  bool hash = false;
  bool json = false;
  std::int64_t sample_mb = 256;
};

Result<int> no_model(const Error& error, Console& console) {
  console.error(error);
  return kExitNoModel;
}

Result<int> run_lint(const LintFlags& flags, Console& console) {
  const Result<std::filesystem::path> folder = resolve_model(flags.model);
  if (!folder) return no_model(folder.error(), console);
  constexpr int kReaders = 8;  // waiting for the disk, not for the processor
  ThreadPool pool(std::max(kReaders, usable_cores()));
  ProgressBar bar(console, flags.hash ? "hashing" : "reading scales and weights");
  const lint::LintOptions options = {.depth = flags.deep ? lint::LintDepth::deep : lint::LintDepth::sample,
                                     .sample_bytes = flags.sample_mb * 1'000'000,
                                     .hash = flags.hash,
                                     .progress = [&](std::int64_t done, std::int64_t total) { bar.show_bytes(done, total); }};
  const Result<lint::LintReport> report = lint::lint_folder(*folder, options, pool);
  bar.clear();
  if (!report) return no_model(report.error(), console);
  TRY(console.print(flags.json ? lint_json(flags.model, *report) : lint_text(flags.model, *report)));
  return report->clean() ? 0 : kExitFindings;
}

Action add_lint(CLI::App& app) {
  const auto flags = std::make_shared<LintFlags>();
  app.description(kDescription);
  app.footer(kExamples);
  add_model_argument(app, flags->model);
  app.add_flag("--deep", flags->deep, "Read every scale, and look for NaN in FP8 weights")->group("What to read");
  app.add_flag("--hash", flags->hash, "Compare files with the checksums that their download left")->group("What to read");
  accept_range(app.add_option("--sample", flags->sample_mb, "Megabytes of block scales and weights to look at\n(default: 256)")
                   ->group("What to read"),
               1, 1'000'000);
  app.add_flag("--json", flags->json, "Print one JSON object")->group("Output");
  return [flags](Console& console) { return run_lint(*flags, console); };
}

}  // namespace

const Subcommand kLint = {.name = "lint",
                          .summary = "Say what is wrong, doubtful or odd about a checkpoint",
                          .example = "reckoner lint models/pocket",
                          .add = add_lint};

}  // namespace reckoner
