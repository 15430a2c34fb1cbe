#include "cli/session.h"

#include <fmt/format.h>

#include <chrono>

#include "cli/lint_report.h"
#include "cli/progress.h"
#include "cli/text_format.h"
#include "formats/model_folder.h"

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

}  // namespace

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
  choose_kernels(session, options.kernels, console);
  session.lint = TRY(lint::lint_folder(session.folder, {.depth = lint::LintDepth::load}, *session.pool));
  print_lint(session.name, session.lint, console);
  return session;
}

Status check_accepted(const Session& session, const MachineOptions& options) {
  return refuse_lint_errors(session.name, session.lint, options.accept);
}

Result<double> load_weights(const Session& session, Console& console) {
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar(console, "reading weights");
    TRY(read_weights(*session.model, *session.pool, [&](std::int64_t done, std::int64_t total) { bar.show_bytes(done, total); }));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace reckoner
