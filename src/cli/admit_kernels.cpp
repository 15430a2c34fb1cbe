#include "cli/admit_kernels.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <system_error>

#include "cli/text_format.h"
#include "model/forward.h"

namespace reckoner {
namespace {

using namespace admission;

std::filesystem::path this_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

Identity identity_of(const AdmissionPlace& place) {
  return {.program = build_of(this_program()),
          .backend = place.library.empty() ? "" : build_of(place.library),
          .device = admission::describe(place.info),
          .driver = place.info.driver};
}

// What a step of one token calls: a longer one calls the same kernels.
Result<std::vector<Item>> used_items(const Session& session, const Refusals& refusals) {
  Device device = session.target();
  device.refusals = refusals;
  const StepLimits limits = {.max_tokens = 1, .max_samples = 1, .max_context = 1024, .cache_type = session.cache_type};
  StepRunner runner(session.share(), session.share().weights, device, *session.pool, session.precision, limits);
  TRY(runner.status());
  return items_of(runner.plan(1, limits.max_context));
}

Setting setting_of(const Admission& found, const std::string& asked, double seconds) {
  const std::size_t passed = found.outcomes.size() - found.refusals.size();
  return {"admission", fmt::format("{} kernels match their references", passed), "",
          fmt::format("--admission {}; {} of them in an earlier start, {}", asked, found.remembered, seconds_text(seconds))};
}

}  // namespace

Result<Admission> try_kernels(const AdmissionPlace& place, const Shapes& shapes, const Choose& choose, const MachineOptions& options,
                              Console& console) {
  const Identity identity = identity_of(place);
  // A library whose file is not known (found on the library path) may be another one at the next start.
  const bool is_known = !identity.program.empty() && (place.library.empty() || !identity.backend.empty());
  Passed passed(is_known ? cache_folder() : std::filesystem::path(), identity,
                options.admission == "again" ? Passed::Earlier::forget : Passed::Earlier::read);
  if (!passed.note().empty()) console.note(passed.note());
  const ChildOptions child{.command = {this_program().string(), "admit"}, .limit = std::chrono::seconds(options.admission_limit_s)};
  const Job job{.device = place.device, .threads = place.threads, .shapes = shapes};
  const Admission found = TRY(admit_chosen(choose, job, child, passed));
  if (found.remembered < std::ssize(found.outcomes)) {
    const Status saved = passed.save();
    if (!saved.ok()) console.note(saved.error().what);
  }
  for (const std::string& sentence : found.sentences()) console.note(sentence);
  return found;
}

Status admit_kernels(Session& session, const MachineOptions& options, Console& console) {
  if (options.admission == "off") {
    session.settings.push_back({"admission", "off", "", "--admission; kernels serve as they are"});
    return {};
  }
  const auto start = std::chrono::steady_clock::now();
  const Device target = session.target();
  const AdmissionPlace place{
      .device = session.gpu.name, .info = target.info, .library = session.gpu.library, .threads = session.pool->threads()};
  const KvLayout layout = kv_layout(session.share().config, session.precision, session.cache_type);
  const Choose choose = [&](const Refusals& refusals) { return used_items(session, refusals); };
  const Admission found = TRY(try_kernels(place, shapes_of(session.share().config, layout), choose, options, console));
  session.refusals = found.refusals;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  session.settings.push_back(setting_of(found, options.admission, seconds));
  for (const std::string& sentence : found.sentences()) session.settings.push_back({"admission", sentence, "", ""});
  return {};
}

}  // namespace reckoner
