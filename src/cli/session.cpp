#include "cli/session.h"

#include <fmt/format.h>

#include <chrono>

#include "cli/lint_report.h"
#include "cli/memory.h"
#include "cli/progress.h"
#include "cli/text_format.h"
#include "formats/model_folder.h"
#include "kernels/cpu/catalogue.h"
#include "model/upload.h"

namespace reckoner {
namespace {

std::string best_kernels(const DeviceInfo& device) { return device.avx512 ? "avx512" : device.avx2 ? "avx2" : "scalar"; }

void choose_kernels(Session& session, const std::string& asked, Console& console) {
  const DeviceInfo whole = detect_cpu();
  const bool is_auto = asked == "auto";
  session.device = is_auto ? whole : limited_to(whole, asked);
  session.kernels = best_kernels(session.device);
  std::string why = is_auto ? "the best that this processor runs" : "--kernels";
  if (!is_auto && session.kernels != asked) {
    why = fmt::format("--kernels asks for {}, which this processor ({}) does not have", asked, whole.name);
    console.note(fmt::format("{}; {} kernels serve", why, session.kernels));
  }
  if (session.kernels == "scalar") {
    console.note(asked == "scalar" ? "the scalar kernels are the plain references: this will be slow"
                                   : "this processor has no AVX2: only the plain reference kernels can run, and they are very slow");
  }
  session.settings.push_back({"kernels", session.kernels, "", why});
}

// What a GPU must have free: the weights, and a cache that is worth having.
std::int64_t least_gpu_bytes(const Session& session) {
  const ModelConfig& config = session.model->config;
  const std::int64_t tokens = std::min<std::int64_t>(4096, config.max_position_embeddings);
  return upload_bytes(*session.model) + tokens * kv_layout(config, session.precision, session.cache_type).bytes_per_token();
}

Status choose_where(Session& session, const MachineOptions& options, Console& console) {
  session.gpu = TRY(choose_device(options.device, options.device == "cpu" ? 0 : least_gpu_bytes(session)));
  session.graphs = options.graphs == "on" ? Graphs::on : Graphs::off;
  session.settings.push_back({"device", session.gpu.name, "", session.gpu.why});
  if (!session.on_gpu()) {
    choose_kernels(session, options.kernels, console);
    return {};
  }
  session.device = detect_cpu();
  session.kernels = "cuda";
  session.settings.push_back({"kernels", "cuda", "", options.kernels == "auto" ? "" : "--kernels has no effect on a GPU"});
  session.settings.push_back({"CUDA graphs", options.graphs, "", "--cuda-graphs"});
  return {};
}

}  // namespace

Device Session::target() const {
  if (!on_gpu()) return {.info = device, .catalogue = cpu_catalogue(), .refusals = refusals};
  return {.info = gpu.memory->info(), .catalogue = gpu.catalogue(), .memory = gpu.memory.get(), .graphs = graphs, .refusals = refusals};
}

std::int64_t Session::free_bytes() const { return on_gpu() ? gpu.memory->free_bytes() : free_memory_bytes(); }
std::int64_t Session::weight_bytes() const { return on_gpu() ? upload_bytes(*model) : model->weight_bytes; }

Result<Session> open_session(const std::string& model, const MachineOptions& options, Console& console) {
  Session session{.name = model,
                  .precision = precision_from(options.precision),
                  .precision_name = options.precision,
                  .cache_type = cache_type_from(options.cache_type)};
  session.folder = TRY(resolve_model(model));
  session.model = TRY(open_model(session.folder));
  const std::int64_t threads = options.threads > 0 ? options.threads : usable_cores();
  session.pool = std::make_unique<ThreadPool>(static_cast<int>(threads));
  session.settings.push_back({"model folder", session.folder.string(), "", ""});
  session.settings.push_back({"precision", session.precision_name, "",
                              session.precision == Precision::exact ? "activations stay float" : "kernels may round activations to BF16"});
  const bool asks_for_fp8 = session.model->quant.kv_cache == "FP8" && session.cache_type == KvCacheType::automatic;
  session.settings.push_back({"KV cache", std::string(cache_name(session.precision, session.cache_type)), "",
                              session.cache_type != KvCacheType::automatic ? "--kv-cache-dtype"
                              : asks_for_fp8                               ? "the checkpoint was made for FP8: --kv-cache-dtype fp8"
                                                                           : "as the precision asks for"});
  session.settings.push_back(
      {"threads", std::to_string(threads), "", options.threads > 0 ? "--threads" : "the cores that this process may use"});
  TRY(choose_where(session, options, console));
  session.lint = TRY(lint::lint_folder(session.folder, {.depth = lint::LintDepth::load}, *session.pool));
  print_lint(session.name, session.lint, console);
  return session;
}

Status check_accepted(const Session& session, const MachineOptions& options) {
  return refuse_lint_errors(session.name, session.lint, options.accept);
}

Result<double> load_weights(Session& session, Console& console) {
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar(console, session.on_gpu() ? "weights to the GPU" : "reading weights");
    const auto progress = [&](std::int64_t done, std::int64_t total) { bar.show_bytes(done, total); };
    if (session.on_gpu()) {
      session.gpu_weights = TRY(upload_weights(*session.model, *session.gpu.memory, *session.pool, progress));
    } else {
      TRY(read_weights(*session.model, *session.pool, progress));
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace reckoner
