// reckoner kernels: which kernel serves each op on some hardware, present or described, and why others do not.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "cli/command_line.h"
#include "cli/options.h"
#include "cli/subcommand.h"
#include "cli/text_format.h"
#include "formats/model_folder.h"
#include "kernels/cpu/catalogue.h"
#include "kernels/device/open_backend.h"
#include "model/loader.h"
#include "model/upload.h"
#include "quant/format.h"
#include "tensor/hardware.h"

namespace reckoner {
namespace {

constexpr const char* kDescription =
    "Says which kernel serves each op, weight format and precision on this machine or on hardware that\n"
    "is only described, and why the ones that would come before it do not. No GPU is needed, but for a\n"
    "GPU's kernels the CUDA backend (make cuda). Exit status 0 only if everything is served.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner kernels\n"
    "  reckoner kernels --hardware rtx-pro-6000\n"
    "  reckoner kernels --hardware h200 --model models/pocket";

constexpr const char* kNone = "none";

struct KernelsOptions {
  std::string model;
  std::string hardware = "cpu";
};

// What serves some keys of an op, all in the same way.
struct Served {
  std::string op;
  std::vector<std::string> formats;  // empty: the op has no weight
  std::string precision;
  std::string kernel;
  std::vector<std::string> refused;
};

// Notes whether an op has a weight.
struct WeightFinder {
  bool found = false;
  template <class... Any>
  void in(Any&&...) {}
  template <class... Any>
  void out(Any&&...) {}
  template <class... Any>
  void inout(Any&&...) {}
  template <class... Any>
  void weight(Any&&...) {
    found = true;
  }
  template <class... Any>
  void weights(Any&&...) {
    found = true;
  }
  template <class... Any>
  void places(Any&&...) {}
  template <class... Any>
  void cache_in(Any&&...) {}
  template <class... Any>
  void cache_out(Any&&...) {}
};

template <class Args>
bool has_weight() {
  Args args;
  WeightFinder finder;
  visit(args, finder);
  return finder.found;
}

template <class Args>
Served served_by(const std::vector<Kernel<Args>>& list, const Key& key, const DeviceInfo& device) {
  Served served{.op = std::string(Args::kName)};
  const Kernel<Args>* const kernel = choose_kernel(list, key, device, &served.refused);
  served.kernel = kernel != nullptr ? std::string(kernel->name) : kNone;
  return served;
}

// Adds to the last one where everything but the format is the same.
void add(std::vector<Served>& all, Served served, std::string_view format) {
  for (Served& other : all) {
    if (other.op != served.op || other.precision != served.precision || other.kernel != served.kernel || other.refused != served.refused)
      continue;
    other.formats.emplace_back(format);
    return;
  }
  served.formats.emplace_back(format);
  all.push_back(std::move(served));
}

template <class Args>
void add_op(const std::vector<Kernel<Args>>& list, const DeviceInfo& device, const std::set<QuantFormat>& formats,
            std::vector<Served>& all) {
  if (!has_weight<Args>()) return all.push_back(served_by(list, {}, device));
  constexpr bool kHasPrecision = requires(Args args) { args.precision; };
  for (const QuantFormat format : formats) {
    for (const Precision precision : {Precision::exact, Precision::fast}) {
      if (precision == Precision::fast && !kHasPrecision) continue;
      Served served = served_by(list, {precision, format}, device);
      served.precision = precision == Precision::exact ? "exact" : "fast";
      add(all, std::move(served), info(format).name);
    }
  }
}

template <class... Args>
std::vector<Served> all_served(const KernelLists<Args...>& catalogue, const DeviceInfo& device, const std::set<QuantFormat>& formats) {
  std::vector<Served> all;
  (add_op(catalogue.template of<Args>(), device, formats, all), ...);
  return all;
}

std::string table(const std::vector<Served>& all) {
  std::string text = fmt::format("{:<17} {:<10} {:<34} {}\n", "op", "precision", "kernel", "weights");
  for (const Served& served : all) {
    const std::string line =
        fmt::format("{:<17} {:<10} {:<34} {}", served.op, served.precision, served.kernel, fmt::join(served.formats, ", "));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    for (const std::string& refused : served.refused) text += fmt::format("{:<17} not {}\n", "", refused);
  }
  return text;
}

std::string heading(const DeviceInfo& device) {
  if (!device.cuda.present()) return device.name + "\n";
  const CudaInfo& gpu = device.cuda;
  return fmt::format("{}: compute capability {}.{}, {} multiprocessors, {} bytes of shared memory a block, {} of memory at {:.0f} GB/s\n",
                     device.name, gpu.major, gpu.minor, gpu.multiprocessors, gpu.shared_bytes_per_block,
                     bytes_text(static_cast<double>(gpu.memory_bytes)), gpu.memory_gbs);
}

std::set<QuantFormat> all_formats() {
  std::set<QuantFormat> all;
  for (const FormatInfo& format : formats()) all.insert(format.format);
  return all;
}

// The formats of the model's matrices; the text says whether its weights fit.
Result<std::set<QuantFormat>> formats_of(const std::string& name, const DeviceInfo& device, std::string& text) {
  const std::filesystem::path folder = TRY(resolve_model(name));
  const std::unique_ptr<Model> model = TRY(open_model(folder));
  std::set<QuantFormat> found;
  for_each_rule(*model->family, model->config, [&](const WeightRule& rule) {
    if (rule.matrix == nullptr) return;
    for_each_place(rule, model->config, [&](WeightPlace place) { found.insert(rule.matrix(model->weights, place).format); });
  });
  const std::int64_t needed = device.cuda.present() ? upload_bytes(*model) : model->weight_bytes;
  text += fmt::format("{}: its weights take {}", name, bytes_text(static_cast<double>(needed)));
  if (device.cuda.present()) text += needed <= device.cuda.memory_bytes ? ", which one such GPU holds" : ": more than one such GPU holds";
  text += "\n";
  return found;
}

Result<int> kernels(const KernelsOptions& options, Console& console) {
  DeviceInfo device = detect_cpu();
  Catalogue catalogue;
  if (const HardwareProfile* const profile = find_profile(options.hardware)) {
    device = {.name = std::string(profile->full_name), .cuda = profile->cuda};
    const DeviceBackend* const backend = TRY(open_cuda_library());
    catalogue = backend->catalogue();
  } else if (options.hardware == "cuda") {
    const OpenedBackend opened = TRY(open_cuda_backend());
    device = opened.devices.front();
    catalogue = opened.backend->catalogue();
  } else {
    catalogue = cpu_catalogue();
  }
  std::string text = heading(device);
  std::set<QuantFormat> used = all_formats();
  if (!options.model.empty()) used = TRY(formats_of(options.model, device, text));
  const std::vector<Served> all = all_served(catalogue, device, used);
  TRY(console.print(text + "\n" + table(all)));
  const bool complete = std::all_of(all.begin(), all.end(), [](const Served& served) { return served.kernel != kNone; });
  return complete ? 0 : kExitFailed;
}

Action add_kernels(CLI::App& app) {
  const auto options = std::make_shared<KernelsOptions>();
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("--model", options->model, "Only the weight formats of this model")->option_text("MODEL");
  std::vector<std::string> names = {"cpu", "cuda"};
  for (const HardwareProfile& profile : hardware_profiles()) names.emplace_back(profile.name);
  app.add_option("--hardware", options->hardware,
                 fmt::format("This machine's cpu or GPU (cuda), or one that is described:\n{}\n(default: cpu)",
                             fmt::join(names.begin() + 2, names.end(), ", ")))
      ->option_text("NAME")
      ->check(CLI::Validator(
          [names](std::string& value) {
            if (std::find(names.begin(), names.end(), value) != names.end()) return std::string();
            return fmt::format("expected one of {}, found '{}'", fmt::join(names, ", "), value);
          },
          ""));
  return [options](Console& console) { return kernels(*options, console); };
}

}  // namespace

const Subcommand kKernels = {.name = "kernels",
                             .summary = "Say which kernels serve on this or on described hardware",
                             .example = "reckoner kernels --hardware h200",
                             .add = add_kernels};

}  // namespace reckoner
