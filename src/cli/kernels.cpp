// reckoner kernels: which kernel serves each op on some hardware, present or described, and why others do not.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "cli/admit_kernels.h"
#include "cli/command_line.h"
#include "cli/options.h"
#include "cli/subcommand.h"
#include "cli/text_format.h"
#include "diagnose/served/served.h"
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
    "GPU's kernels the CUDA backend (make cuda). With --admit each is compared with its reference on this\n"
    "machine, and the column says its largest error, 1 being what is allowed. For a GPU the most shared\n"
    "memory that a block of the kernel takes stands beside what the GPU has. Exit status 0 only if\n"
    "everything is served.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner kernels\n"
    "  reckoner kernels --admit\n"
    "  reckoner kernels --hardware rtx-pro-6000\n"
    "  reckoner kernels --hardware h200 --model models/pocket";

struct KernelsOptions {
  std::string model;
  std::string hardware = "cpu";
  bool admit = false;
  MachineOptions machine = {.admission = "again"};  // --admit asks for it now
};

// Where kernels come from, and what they would run on.
struct Hardware {
  DeviceInfo device = {};
  Catalogue catalogue = {};
  AdmissionPlace place = {};
  Refusals refusals = {};
};

// The largest error of the kernel for these keys, in terms of what is allowed.
std::string admission_text(const Served& served, const std::vector<admission::Outcome>& outcomes) {
  double worst = 0;
  bool tried = false;
  for (const admission::Outcome& outcome : outcomes) {
    if (std::find(served.items.begin(), served.items.end(), outcome.item) == served.items.end()) continue;
    tried = true;
    worst = std::max(worst, outcome.worst);
  }
  const bool is_kernel = served.kernel != kNoKernel && served.kernel != kItsParts;
  return !is_kernel ? "" : !tried ? "reference" : worst == 0 ? "passed, exactly" : fmt::format("passed, {:.2f}", worst);
}

// `outcomes`: of admission; nullptr leaves the column out. The column of shared memory is a GPU's.
std::string table(const std::vector<Served>& all, const DeviceInfo& device, const std::vector<admission::Outcome>* outcomes) {
  const auto passed = [&](const std::string& text) { return outcomes == nullptr ? "" : fmt::format("{:<17} ", text); };
  const auto shared = [&](const std::string& text) { return device.cuda.present() ? fmt::format("{:<16} ", text) : ""; };
  const std::string limit = fmt::format("of {} B", device.cuda.shared_bytes_per_block);
  std::string text =
      fmt::format("{:<17} {:<10} {:<34} {}{}{}\n", "op", "precision", "kernel", shared(limit), passed("admission"), "weights");
  for (const Served& served : all) {
    const std::string line = fmt::format(
        "{:<17} {:<10} {:<34} {}{}{}", served.op, served.precision, served.kernel, shared(fmt::format("{} B", served.shared_bytes)),
        passed(outcomes == nullptr ? "" : admission_text(served, *outcomes)), fmt::join(served.formats, ", "));
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

// What is wanted of the kernels: these formats, with cases of these sizes.
struct Wanted {
  std::set<QuantFormat> formats = all_formats();
  admission::Shapes shapes = {};
};

// Of the model's matrices; the text says whether its weights fit.
Result<Wanted> wanted_by(const std::string& name, const DeviceInfo& device, std::string& text) {
  const std::filesystem::path folder = TRY(resolve_model(name));
  const std::unique_ptr<Model> model = TRY(open_model(folder));
  const KvLayout layout = kv_layout(model->config, Precision::fast, KvCacheType::automatic);
  Wanted wanted{.formats = {}, .shapes = admission::shapes_of(model->config, layout)};
  for_each_rule(*model->family, model->config, [&](const WeightRule& rule) {
    if (rule.matrix == nullptr) return;
    for_each_place(rule, model->config, [&](WeightPlace place) { wanted.formats.insert(rule.matrix(model->weights, place).format); });
  });
  const std::int64_t needed = device.cuda.present() ? upload_bytes(*model) : model->weight_bytes;
  text += fmt::format("{}: its weights take {}", name, bytes_text(static_cast<double>(needed)));
  if (device.cuda.present()) text += needed <= device.cuda.memory_bytes ? ", which one such GPU holds" : ": more than one such GPU holds";
  text += "\n";
  return wanted;
}

Result<Hardware> find_hardware(const KernelsOptions& options) {
  if (const HardwareProfile* const profile = find_profile(options.hardware)) {
    if (options.admit) {
      return Error{fmt::format("--admit runs kernels, and {} is only described", options.hardware),
                   "leave --hardware out for this processor, or use --hardware cuda for this machine's GPU"};
    }
    const DeviceBackend* const backend = TRY(open_cuda_library());
    return Hardware{.device = {.name = std::string(profile->full_name), .cuda = profile->cuda}, .catalogue = backend->catalogue()};
  }
  if (options.hardware == "cuda") {
    const OpenedBackend opened = TRY(open_cuda_backend());
    const DeviceInfo& device = opened.devices.front();
    return Hardware{
        .device = device, .catalogue = opened.backend->catalogue(), .place = {.device = "cuda:0", .info = device, .library = opened.path}};
  }
  const DeviceInfo cpu = detect_cpu();
  return Hardware{.device = cpu, .catalogue = cpu_catalogue(), .place = {.info = cpu, .threads = usable_cores()}};
}

// Tries what serves; what is refused does not any more.
Result<std::vector<admission::Outcome>> admit_served(Hardware& hardware, const Wanted& wanted, const KernelsOptions& options,
                                                     Console& console) {
  const admission::Choose choose = [&](const Refusals& refusals) -> Result<std::vector<admission::Item>> {
    hardware.refusals = refusals;
    std::vector<admission::Item> items;
    for (const Served& served : all_served(hardware.catalogue, hardware.device, hardware.refusals, wanted.formats))
      items.insert(items.end(), served.items.begin(), served.items.end());
    return items;
  };
  const admission::Admission found = TRY(try_kernels(hardware.place, wanted.shapes, choose, options.machine, console));
  return found.outcomes;
}

Result<int> kernels(const KernelsOptions& options, Console& console) {
  Hardware hardware = TRY(find_hardware(options));
  std::string text = heading(hardware.device);
  Wanted wanted;
  if (!options.model.empty()) wanted = TRY(wanted_by(options.model, hardware.device, text));
  std::vector<admission::Outcome> outcomes;
  if (options.admit) outcomes = TRY(admit_served(hardware, wanted, options, console));
  const std::vector<Served> all = all_served(hardware.catalogue, hardware.device, hardware.refusals, wanted.formats);
  TRY(console.print(text + "\n" + table(all, hardware.device, options.admit ? &outcomes : nullptr)));
  const bool complete = std::all_of(all.begin(), all.end(), [](const Served& served) { return served.kernel != kNoKernel; });
  return complete ? 0 : kExitFailed;
}

Action add_kernels(CLI::App& app) {
  const auto options = std::make_shared<KernelsOptions>();
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("--model", options->model, "Only the weight formats of this model")->option_text("MODEL");
  app.add_flag("--admit", options->admit, "Compare each kernel with its reference on this machine")->option_text(" ");
  add_admission_limit(app, options->machine);
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
