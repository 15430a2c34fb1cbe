#include "cli/bad_step.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>

#include "diagnose/admission/passed.h"
#include "diagnose/trace/origin.h"

namespace reckoner {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBetween = std::chrono::hours(1);

void look_into(const BadStep& bad, const Session& session, const std::filesystem::path& folder, Console& console) {
  const trace::WeightIndex weights(*session.model, session.weights());
  trace::BundleWish wish{.path = new_bundle_path(folder, fmt::format("step{}", bad.step))};
  wish.about = {{"model", session.name},
                {"device", session.on_gpu() ? session.gpu.memory->info().name : session.device.name},
                {"precision", session.precision_name},
                {"version", RECKONER_VERSION}};
  std::error_code ignored;  // the bundle's own error says more
  std::filesystem::create_directories(folder, ignored);
  const std::int64_t first_layer = trace::layer_of(bad.place, session.model->config.num_hidden_layers);
  const std::optional<trace::Origin> origin = trace::find_origin(bad.runner, bad.batch, bad.step, weights, wish, first_layer);
  if (!origin) {
    console.note(fmt::format("step {} was run again to find where its value stopped being finite: this time it did not happen", bad.step));
    return;
  }
  console.note("origin: " + origin->sentence());
  if (!origin->bundle.empty()) console.note(fmt::format("bundle: {} (see `reckoner replay`)", origin->bundle));
  if (!origin->bundle_error.empty()) console.note("no bundle was written: " + origin->bundle_error);
}

}  // namespace

void add_trace_dir_option(CLI::App& app, std::string& trace_dir) {
  app.add_option("--trace-dir", trace_dir,
                 "Where to write a bundle when a value is not finite, once an\nhour at most; off: do not look for its origin\n"
                 "(default: reckoner/traces in the cache folder)")
      ->option_text("DIR|off")
      ->group("Machine");
}

std::filesystem::path default_trace_folder() {
  const std::filesystem::path admission = admission::cache_folder();
  return admission.empty() ? std::filesystem::path("traces") : admission.parent_path() / "traces";
}

std::filesystem::path new_bundle_path(const std::filesystem::path& folder, const std::string& what) {
  const std::string date = fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(std::time(nullptr)));
  return folder / fmt::format("{}-{}-{}.safetensors", date, ::getpid(), what);
}

void trace_bad_steps(Engine& engine, const Session& session, const std::string& trace_dir, Console& console) {
  if (trace_dir == "off") return;
  const std::filesystem::path folder = trace_dir.empty() ? default_trace_folder() : std::filesystem::path(trace_dir);
  engine.on_bad_step = [&session, &console, folder, last = std::optional<Clock::time_point>()](const BadStep& bad) mutable {
    const Clock::time_point now = Clock::now();
    if (last && now - *last < kBetween) return;
    last = now;
    look_into(bad, session, folder, console);
  };
}

}  // namespace reckoner
