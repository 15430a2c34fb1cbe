#include "cli/session.h"

#include <fmt/format.h>

#include <chrono>

#include "cli/lint_report.h"
#include "cli/memory.h"
#include "cli/progress.h"
#include "cli/text_format.h"
#include "engine/tensor_parallel_model.h"
#include "formats/model_folder.h"
#include "kernels/cpu/catalogue.h"
#include "kernels/device/backend_communicator.h"
#include "model/share_of.h"
#include "model/upload.h"
#include "parallel/thread_communicator.h"

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
  const ModelConfig& config = session.share().config;
  const std::int64_t tokens = std::min<std::int64_t>(4096, config.max_position_embeddings);
  const Model& largest = session.share(session.ranks() - 1);
  return upload_bytes(largest) + tokens * kv_layout(config, session.precision, session.cache_type).bytes_per_token();
}

Status divide(Session& session, std::int64_t ranks) {
  const auto count = static_cast<int>(ranks);
  for (int rank = 0; rank < count && count > 1; ++rank) {
    Result<std::unique_ptr<Model>> share = share_of(*session.model, {rank, count});
    if (!share.ok()) return Error{fmt::format("--tp {}: {}", ranks, share.error().what), share.error().remedy};
    session.shares.push_back(std::move(share).value());
  }
  return {};
}

void report_ranks(Session& session) {
  if (session.ranks() == 1) return;
  session.settings.push_back({"ranks", std::to_string(session.ranks()), "", "--tp; each has a part of every layer"});
  session.settings.push_back({"weights a rank", bytes_text(static_cast<double>(session.share().weight_bytes)), "",
                              fmt::format("of {}", bytes_text(static_cast<double>(session.model->weight_bytes)))});
}

Status choose_where(Session& session, const MachineOptions& options, Console& console) {
  TRY(divide(session, options.ranks));
  const DeviceNeeds needs{.ranks = session.ranks(), .bytes = options.device == "cpu" ? 0 : least_gpu_bytes(session)};
  std::vector<DeviceChoice> devices = TRY(choose_devices(options.device, needs));
  session.gpu = std::move(devices.front());
  for (std::size_t rank = 1; rank < devices.size(); ++rank) session.more_gpus.push_back(std::move(devices[rank]));
  session.graphs = options.graphs == "on" ? Graphs::on : Graphs::off;
  session.settings.push_back({"device", session.device_names(), "", session.gpu.why});
  report_ranks(session);
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

Device Session::target(int rank) const {
  if (!on_gpu()) return {.info = device, .catalogue = cpu_catalogue(), .refusals = refusals};
  DeviceMemory* const memory = place(rank).memory.get();
  return {.info = memory->info(), .catalogue = gpu.catalogue(), .memory = memory, .graphs = graphs, .refusals = refusals};
}

std::int64_t Session::free_bytes() const {
  if (!on_gpu()) return free_memory_bytes();
  std::int64_t least = gpu.memory->free_bytes();
  for (const DeviceChoice& other : more_gpus) least = std::min(least, other.memory->free_bytes());
  return least;
}

std::int64_t Session::weight_bytes() const {
  if (on_gpu()) return upload_bytes(share(ranks() - 1));
  std::int64_t bytes = model->weight_bytes;
  for (const std::unique_ptr<Model>& part : shares) bytes += copied_bytes(*part);
  return bytes;
}

std::int64_t Session::cache_bytes_per_token() const {
  const std::int64_t of_rank = kv_layout(share().config, precision, cache_type).bytes_per_token();
  return on_gpu() ? of_rank : of_rank * ranks();
}

std::string Session::device_names() const {
  std::string names = gpu.name;
  for (const DeviceChoice& other : more_gpus) names += ", " + other.name;
  return names;
}

std::string Session::ranks_text() const {
  if (ranks() == 1) return {};
  return fmt::format(", {} ranks of {} each", ranks(), bytes_text(static_cast<double>(share().weight_bytes)));
}

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

namespace {

Status load_rank(Session& session, int rank, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  if (session.on_gpu()) {
    ModelWeights weights = TRY(upload_weights(session.share(rank), *session.place(rank).memory, *session.pool, progress));
    session.gpu_weights.push_back(std::move(weights));
    return {};
  }
  if (session.ranks() == 1) return read_weights(*session.model, *session.pool, progress);
  return read_share(session.share(rank), *session.pool, progress);
}

// What the ranks' GPUs, or the ranks on the processor, meet through.
Result<std::vector<std::unique_ptr<Communicator>>> connect(const Session& session, Console& console) {
  if (!session.on_gpu()) return thread_communicators(session.ranks());
  std::vector<int> numbers;
  for (int rank = 0; rank < session.ranks(); ++rank) numbers.push_back(session.place(rank).number);
  ConnectedRanks connected = TRY(connect_ranks(*session.gpu.backend, numbers));
  console.note(fmt::format("{} connects {}", connected.library, session.device_names()));
  return std::move(connected.communicators);
}

}  // namespace

Result<double> load_weights(Session& session, Console& console) {
  const auto start = std::chrono::steady_clock::now();
  for (int rank = 0; rank < session.ranks(); ++rank) {
    const std::string of_rank = session.ranks() > 1 ? fmt::format(", rank {}", rank) : "";
    ProgressBar bar(console, (session.on_gpu() ? "weights to the GPU" : "reading weights") + of_rank);
    TRY(load_rank(session, rank, [&](std::int64_t done, std::int64_t total) { bar.show_bytes(done, total); }));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<std::unique_ptr<StepModel>> make_step_model(const Session& session, Precision precision, const StepLimits& limits,
                                                   Console& console) {
  std::unique_ptr<StepModel> model;
  if (session.ranks() == 1) {
    model = std::make_unique<RunnerModel>(*session.model, session.weights(), session.target(), *session.pool, precision, limits);
  } else {
    std::vector<std::unique_ptr<Communicator>> communicators = TRY(connect(session, console));
    std::vector<RankParts> parts;
    for (int rank = 0; rank < session.ranks(); ++rank) {
      parts.push_back({.share = &session.share(rank),
                       .weights = &session.weights(rank),
                       .device = session.target(rank),
                       .communicator = std::move(communicators[static_cast<std::size_t>(rank)]),
                       .name = fmt::format("rank {} on {}", rank, session.place(rank).name)});
    }
    model = std::make_unique<TensorParallelModel>(std::move(parts), *session.pool, precision, limits);
  }
  TRY(model->status());
  return model;
}

}  // namespace reckoner
