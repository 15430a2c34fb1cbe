// reckoner replay: runs one call of an op again, on every kernel.
#include "diagnose/trace/replay.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/threads.h"
#include "cli/command_line.h"
#include "cli/device_choice.h"
#include "cli/options.h"
#include "cli/subcommand.h"
#include "kernels/cpu/catalogue.h"

namespace reckoner {
namespace {

constexpr const char* kDescription =
    "Runs the op of a bundle, which `reckoner trace` or a server wrote, on every kernel that takes it,\n"
    "on the processor and on a GPU where one is, and compares each with the op's reference. Says which\n"
    "kernel is wrong, or that what the op reads is bad already, so that all agree. Neither the model nor\n"
    "the machine of the bundle is needed. Exit status 0 only if no kernel is wrong.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner replay bundle.safetensors\n"
    "  reckoner replay bundle.safetensors --device cpu --json";

struct ReplayOptions {
  std::string bundle;
  std::string device = "auto";
  std::int64_t threads = 0;
  bool json = false;
};

Result<int> replay_bundle(const ReplayOptions& options, Console& console) {
  const trace::Bundle bundle = TRY(trace::read_bundle(options.bundle));
  const std::vector<DeviceChoice> devices = TRY(choose_devices(options.device, {}));
  const DeviceChoice& gpu = devices.front();
  const Catalogue cpu = cpu_catalogue();
  const Catalogue cuda = gpu.memory != nullptr ? gpu.catalogue() : Catalogue{};
  std::vector<trace::ReplayStand> stands;
  stands.push_back({.name = "cpu", .info = detect_cpu(), .catalogue = cpu});
  if (gpu.memory != nullptr)
    stands.push_back({.name = gpu.name, .info = gpu.memory->info(), .catalogue = cuda, .memory = gpu.memory.get()});
  ThreadPool pool(options.threads > 0 ? static_cast<int>(options.threads) : usable_cores());
  const trace::ReplayReport report = TRY(trace::replay(bundle, stands, pool));
  TRY(console.print(options.json ? trace::replay_json(report) : trace::replay_text(report)));
  return report.wrong.empty() ? 0 : kExitFailed;
}

Action add_replay(CLI::App& app) {
  const auto options = std::make_shared<ReplayOptions>();
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("BUNDLE", options->bundle, "A .safetensors file that `reckoner trace` wrote")->required()->option_text(" ");
  app.add_option("--device", options->device,
                 "auto: on the processor, and on the first GPU if there is one;\ncpu: on the processor alone "
                 "(default: auto)")
      ->option_text("auto|cpu|cuda[:N]");
  accept_range(app.add_option("--threads", options->threads, "Threads (default: the cores that may be used)"), 1, 1024);
  app.add_flag("--json", options->json, "Print one JSON object");
  return [options](Console& console) { return replay_bundle(*options, console); };
}

}  // namespace

const Subcommand kReplay = {.name = "replay",
                            .summary = "Run one call of an op again, on every kernel",
                            .example = "reckoner replay bundle.safetensors",
                            .add = add_replay};

}  // namespace reckoner
