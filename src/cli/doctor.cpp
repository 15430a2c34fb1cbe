// reckoner doctor: whether a model will work on a machine, before anything is loaded.
#include "diagnose/doctor/doctor.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command_line.h"
#include "cli/doctor_report.h"
#include "cli/memory.h"
#include "cli/options.h"
#include "formats/model_folder.h"
#include "kernels/cpu/catalogue.h"
#include "kernels/device/backend_memory.h"
#include "kernels/device/open_backend.h"

namespace reckoner {
namespace {

constexpr const char* kDescription =
    "Looks at this machine, or at one that is described, at a checkpoint, and says whether the two go\n"
    "together: what fits, at which context, how quick it will be, which kernels serve, and which known\n"
    "failures concern it. No weight is loaded and no GPU is needed. Without MODEL: the machine alone.\n"
    "Exit status: 0 it works (with doubts, perhaps), 1 it will not work as asked, 2 a wrong command line.";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner doctor\n"
    "  reckoner doctor models/pocket\n"
    "  reckoner doctor zai-org/GLM-5.2-FP8 --hardware \"8x H200\" --context 131072 --streams 4\n"
    "  reckoner doctor models/pocket --hardware rtx-pro-6000 --json";

struct DoctorFlags {
  std::string model;
  std::string hardware;
  std::int64_t ranks = 0;
  std::string precision = "fast";
  std::string cache_type = "auto";
  std::vector<std::string> accept;
  std::string findings;
  std::int64_t context = 0;
  std::int64_t streams = 1;
  std::int64_t chunk = 512;
  bool json = false;
};

void use_profile(doctor::Hardware& hardware, const HardwareProfile* profile) {
  hardware.profile = profile;
  if (profile != nullptr) hardware.peaks = doctor::peaks_of(*profile);
}

std::string gpus_text(const doctor::Hardware& hardware) {
  return hardware.gpus == 1 ? hardware.device.name : fmt::format("{}x {}", hardware.gpus, hardware.device.name);
}

void use_processor(doctor::Hardware& hardware) {
  hardware.device = detect_cpu();
  hardware.name = hardware.device.name.empty() ? "this processor" : hardware.device.name;
  hardware.catalogue = cpu_catalogue();
  hardware.memory_bytes = free_memory_bytes();
}

Result<doctor::Hardware> described(const std::string& text) {
  const doctor::NamedHardware named = TRY(doctor::parse_hardware(text));
  doctor::Hardware hardware{.is_described = named.count > 0, .gpus = named.count};
  if (named.count == 0) {
    use_processor(hardware);
    return hardware;
  }
  use_profile(hardware, named.profile);
  hardware.device = {.name = std::string(named.profile->full_name), .cuda = named.profile->cuda};
  hardware.name = gpus_text(hardware);
  hardware.memory_bytes = named.profile->cuda.memory_bytes;
  const Result<const DeviceBackend*> backend = open_cuda_library();
  if (backend) {
    hardware.catalogue = (*backend)->catalogue();
  } else {
    hardware.no_kernels = backend.error().what;
  }
  return hardware;
}

// GPUs that the driver names and that no backend can be asked about: as good as described.
bool use_named_by_driver(doctor::Hardware& hardware) {
  const doctor::HostFacts host = doctor::read_host("/");
  const HardwareProfile* const profile = host.gpus.empty() ? nullptr : doctor::profile_of(host.gpus.front().model);
  if (profile == nullptr) return false;
  for (const doctor::PciGpu& gpu : host.gpus) hardware.gpus += gpu.model == host.gpus.front().model ? 1 : 0;
  use_profile(hardware, profile);
  hardware.device = {.name = host.gpus.front().model, .cuda = profile->cuda, .driver = host.driver};
  hardware.name = gpus_text(hardware);
  hardware.memory_bytes = profile->cuda.memory_bytes;
  hardware.no_kernels = hardware.no_gpu;
  return true;
}

// The GPUs of this machine; equal ones are taken together, as tensor parallelism would.
doctor::Hardware present() {
  doctor::Hardware hardware;
  const Result<OpenedBackend> opened = open_cuda_backend();
  if (!opened) {
    hardware.no_gpu = opened.error().what;
    if (!use_named_by_driver(hardware)) use_processor(hardware);
    return hardware;
  }
  hardware.device = opened->devices.front();
  hardware.catalogue = opened->backend->catalogue();
  for (std::size_t number = 0; number < opened->devices.size(); ++number) {
    const DeviceInfo& device = opened->devices[number];
    if (device.name != hardware.device.name) continue;
    ++hardware.gpus;
    BackendMemory memory(*opened->backend, static_cast<int>(number), device);
    const std::int64_t free = memory.free_bytes();
    // The fullest one decides.
    hardware.memory_bytes = hardware.gpus == 1 ? free : std::min(free, hardware.memory_bytes);
  }
  use_profile(hardware, doctor::profile_of(hardware.device.name));
  hardware.name = gpus_text(hardware);
  return hardware;
}

Result<int> usage(const Error& error, Console& console) {
  console.error(error);
  return kExitUsage;
}

Result<int> run_doctor(const DoctorFlags& flags, Console& console) {
  Result<doctor::Hardware> hardware = flags.hardware.empty() ? Result<doctor::Hardware>(present()) : described(flags.hardware);
  if (!hardware) return usage({"--hardware: " + hardware.error().what, hardware.error().remedy}, console);
  doctor::Options options{.model = flags.model,
                          .ranks = static_cast<int>(flags.ranks),
                          .fit = {.precision = precision_from(flags.precision),
                                  .cache_type = cache_type_from(flags.cache_type),
                                  .context = flags.context,
                                  .streams = flags.streams,
                                  .chunk = flags.chunk},
                          .accept = flags.accept,
                          .findings_folder = flags.findings};
  if (!flags.model.empty()) {
    const Result<std::filesystem::path> folder = resolve_model(flags.model);
    if (!folder) return usage(folder.error(), console);
    options.folder = *folder;
  }
  constexpr int kReaders = 8;  // waiting for the disk, not for the processor
  ThreadPool pool(std::max(kReaders, usable_cores()));
  const doctor::Report report = TRY(doctor::examine(*std::move(hardware), options, pool));
  TRY(console.print(flags.json ? doctor_json(report, options) : doctor_text(report, options)));
  return report.verdict == doctor::Verdict::impossible ? kExitFailed : 0;
}

Action add_doctor(CLI::App& app) {
  const auto flags = std::make_shared<DoctorFlags>();
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("MODEL", flags->model, "A folder, or a repository in the Hugging Face cache")->option_text(" ");
  app.add_option("--hardware", flags->hardware, "cpu, h200, \"8x RTX PRO 6000\" ... (default: this machine's GPUs, or\nits processor)")
      ->option_text("NAME");
  accept_range(app.add_option("--tp", flags->ranks, "GPUs that divide the model among them (default: as many as can)"), 1, 64);
  accept_range(app.add_option("--context", flags->context, "Tokens of a request (default: the longest that fits)"), 1, 1 << 30);
  accept_range(app.add_option("--streams", flags->streams, "Requests of that many tokens at a time (default: 1)"), 1, 1024);
  accept_range(app.add_option("--chunk", flags->chunk, "Prompt tokens a step (default: 512)"), 1, 65536);
  accept_only(app.add_option("--precision", flags->precision, "exact or fast (default: fast)"), {"exact", "fast"});
  accept_only(app.add_option("--kv-cache-dtype", flags->cache_type, "auto, bf16 or fp8 (default: auto)"), {"auto", "bf16", "fp8"});
  app.add_option("--accept", flags->accept, "Go on in spite of this kind of lint error, as serve does")
      ->option_text("ID")
      ->allow_extra_args(false);
  app.add_option("--findings", flags->findings, "Also read the findings of this folder")->option_text("DIR");
  app.add_flag("--json", flags->json, "Print one JSON object");
  return [flags](Console& console) { return run_doctor(*flags, console); };
}

}  // namespace

const Subcommand kDoctor = {.name = "doctor",
                            .summary = "Say whether a model will work on a machine, and how well",
                            .example = "reckoner doctor models/pocket",
                            .add = add_doctor};

}  // namespace reckoner
