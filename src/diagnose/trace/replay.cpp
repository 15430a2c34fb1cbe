#include "diagnose/trace/replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>

#include "diagnose/admission/copies.h"
#include "diagnose/trace/step_probe.h"
#include "diagnose/trace/weight_index.h"
#include "quant/format.h"

namespace reckoner::trace {
namespace {

constexpr std::int64_t kFirstArenaBytes = 4 << 20;
constexpr std::int64_t kMostArenaBytes = std::int64_t{1} << 34;

// A stream of the stand's device.
class StandStream {
 public:
  explicit StandStream(DeviceMemory* memory) : memory_(memory), stream(memory == nullptr ? nullptr : memory->make_stream()) {}
  ~StandStream() {
    if (memory_ != nullptr) memory_->release_stream(stream);
  }
  StandStream(const StandStream&) = delete;
  StandStream& operator=(const StandStream&) = delete;

 private:
  DeviceMemory* memory_;

 public:
  const Stream stream;
};

// Runs the kernel on copies where it reads them, and brings back what it wrote. An arena that is large enough is found by trying.
template <class Args>
Status run_kernel(const Kernel<Args>& kernel, const Captured<Args>& call, const ReplayStand& stand, ThreadPool& pool) {
  const StandStream stream(stand.memory);
  const std::int64_t workspace_bytes = kernel.workspace_bytes(call.args, pool.threads());
  for (std::int64_t size = kFirstArenaBytes; size <= kMostArenaBytes; size *= 4) {
    admission::Arena arena(size, stand.memory, stream.stream);
    admission::Copies copies(arena);
    Args args = call.args;
    visit(args, copies);
    std::byte* const workspace = arena.take(workspace_bytes);
    if (stand.memory != nullptr) TRY(stand.memory->status());
    if (!copies.complete() || workspace == nullptr) continue;
    Lane lane{pool, workspace, stream.stream};
    kernel.run(args, lane);
    const std::vector<std::byte> bytes = arena.bytes();
    if (stand.memory != nullptr) TRY(stand.memory->status());
    copies.bring_back(bytes);
    return {};
  }
  return Error{"its inputs are too large", "use a smaller bundle"};
}

template <class Args>
void run_all(const Captured<Args>& before, const Captured<Args>& expected, const ReplayStand& stand, ThreadPool& pool,
             ReplayReport& report) {
  for (const Kernel<Args>& kernel : stand.catalogue.of<Args>()) {
    ReplayRow row{.kernel = std::string(kernel.name), .device = stand.name};
    const Support support = kernel.supports(report.key, stand.info);
    row.refused = support.yes ? "" : support.reason;
    if (support.yes) {
      const Captured<Args> found = copy_of(before);
      const Status ran = run_kernel(kernel, found, stand, pool);
      if (ran.ok()) row.difference = compare_outputs(before.args, expected.args, found.args);
      if (!ran.ok()) row.refused = ran.error().what;
    }
    if (row.refused.empty() && !row.difference.agrees()) report.wrong.push_back(row.kernel);
    report.rows.push_back(std::move(row));
  }
}

// A visitor: weights with elements that are not finite.
class BadWeights {
 public:
  explicit BadWeights(std::vector<std::string>& into) : into_(into) {}
  void in(const char*, const Tensor&) {}
  void out(const char*, const Tensor&) {}
  void inout(const char*, const Tensor&) {}
  void weight(const char* name, const Weight& w) { look(name, w); }
  void weights(const char* name, std::span<const Weight> all) {
    for (std::size_t i = 0; i < all.size(); ++i) look(fmt::format("{}.{}", name, i), all[i]);
  }
  void places(const TokenPlaces&) {}
  void cache_in(const char*, const CacheView&) {}
  void cache_out(const char*, const CacheView&) {}

 private:
  void look(const std::string& argument, const Weight& w) {
    const std::string_view name = w.name.empty() ? std::string_view(argument) : w.name;
    const std::optional<BadElement> bad = find_bad_element(w, 0, w.rows);
    if (!bad) return;
    into_.push_back(bad->by_scale
                        ? fmt::format("weight {}: the block scale at row {}, column {} is {}", name, bad->row, bad->col, bad->scale)
                        : fmt::format("weight {}: the element at row {}, column {} is {}", name, bad->row, bad->col, bad->value));
  }
  std::vector<std::string>& into_;
};

template <class Args>
void look_at_inputs(const Args& args, ReplayReport& report) {
  HostReader reader;
  for (const ArgumentStats& input : input_stats(AnyArgs(&args), reader)) {
    if (input.values.finite()) continue;
    report.bad_inputs.push_back(fmt::format("{}: {} of {} values are not finite, the first at row {}, column {}", input.name,
                                            input.values.non_finite, input.values.count, input.values.first_bad / input.row_elements,
                                            input.values.first_bad % input.row_elements));
  }
  visit(args, BadWeights(report.bad_inputs));
}

std::string conclude(const ReplayReport& report, const OutputDifference& seen) {
  if (!report.wrong.empty())
    return fmt::format("{} {} wrong: {} differ{} from the reference by more than is allowed", fmt::join(report.wrong, ", "),
                       report.wrong.size() == 1 ? "is" : "are", report.wrong.size() == 1 ? "it" : "they",
                       report.wrong.size() == 1 ? "s" : "");
  if (!report.bad_inputs.empty() && !report.reference_finite)
    return fmt::format("every kernel agrees: what the op reads is bad already ({})", report.bad_inputs.front());
  if (!report.reference_finite) return "every kernel agrees: finite inputs give what is beyond the range of float";
  if (!seen.agrees()) return "every kernel here agrees with the reference, and what was seen does not: run it again where it was seen";
  return "every kernel agrees with the reference, and so does what was seen";
}

template <class Args>
ReplayReport replay_one(const Captured<Args>& before, const Captured<Args>& seen, const Bundle& bundle,
                        const std::vector<ReplayStand>& stands, ThreadPool& pool) {
  ReplayReport report{.op = std::string(Args::kName), .key = before.args.key(), .about = bundle.about};
  look_at_inputs(before.args, report);
  const Captured<Args> expected = copy_of(before);
  reference(expected.args);
  const OutputDifference own = compare_outputs(before.args, expected.args, expected.args);
  report.reference_finite = own.non_finite_expected == 0;
  report.rows.push_back({.kernel = "seen",
                         .device = bundle.about.contains("device") ? bundle.about.at("device") : "",
                         .refused = {},
                         .difference = compare_outputs(before.args, expected.args, seen.args)});
  const OutputDifference difference = report.rows.front().difference;
  for (const ReplayStand& stand : stands) run_all(before, expected, stand, pool, report);
  report.conclusion = conclude(report, difference);
  return report;
}

std::string error_text(const OutputDifference& difference) {
  if (difference.worst == 0 && difference.beyond == 0) return "none";
  return std::isfinite(difference.worst) ? fmt::format("{:.3g}", difference.worst) : "any";
}

std::string where_text(const OutputDifference& d) {
  if (d.output.empty()) return "";
  return fmt::format("{} row {}, column {}: {:.6g} where the reference has {:.6g}", d.output, d.row, d.column, d.found, d.expected);
}

}  // namespace

Key key_of(const AnyCaptured& call) {
  return std::visit([](const auto& captured) { return captured.args.key(); }, call);
}

Result<ReplayReport> replay(const Bundle& bundle, const std::vector<ReplayStand>& stands, ThreadPool& pool) {
  return std::visit(
      [&](const auto& before) -> Result<ReplayReport> {
        return replay_one(before, std::get<std::remove_cvref_t<decltype(before)>>(bundle.seen), bundle, stands, pool);
      },
      bundle.before);
}

std::string replay_text(const ReplayReport& report) {
  std::string text =
      fmt::format("{} ({}, {})\n", report.op, info(report.key.format).name, report.key.precision == Precision::exact ? "exact" : "fast");
  for (const auto& [key, value] : report.about) text += fmt::format("  {:<10} {}\n", key, value);
  for (const std::string& bad : report.bad_inputs) text += fmt::format("  not finite: {}\n", bad);
  text += fmt::format("\n{:<34} {:<8} {:<12} {:<11} {}\n", "kernel", "device", "error", "not finite", "worst");
  std::map<std::string, std::vector<std::string>> refused;  // by reason
  for (const ReplayRow& row : report.rows) {
    if (!row.refused.empty()) {
      refused[fmt::format("on {}, {}", row.device, row.refused)].push_back(row.kernel);
      continue;
    }
    std::string line = fmt::format("{:<34} {:<8} {:<12} {:<11} {}", row.kernel, row.device, error_text(row.difference),
                                   row.difference.non_finite_found, where_text(row.difference));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + (row.difference.agrees() ? "\n" : "  WRONG\n");
  }
  for (const auto& [reason, kernels] : refused) text += fmt::format("not run {}: {}\n", reason, fmt::join(kernels, ", "));
  return text + fmt::format("\nThe error is in terms of what is allowed: 1 is the most.\n{}\n", report.conclusion);
}

std::string replay_json(const ReplayReport& report) {
  namespace json = boost::json;
  const auto number = [](double value) { return std::isfinite(value) ? json::value(value) : json::value(fmt::format("{}", value)); };
  json::array rows;
  for (const ReplayRow& row : report.rows) {
    json::object one{{"kernel", row.kernel}, {"device", row.device}};
    if (!row.refused.empty()) {
      one["refused"] = row.refused;
    } else {
      const OutputDifference& d = row.difference;
      one["agrees"] = d.agrees();
      one["error"] = number(d.worst);
      one["elements_beyond"] = d.beyond;
      one["non_finite"] = d.non_finite_found;
      if (!d.output.empty()) {
        one["worst"] = {{"output", d.output},       {"row", d.row},
                        {"column", d.column},       {"expected", number(d.expected)},
                        {"found", number(d.found)}, {"allowed", number(d.allowed)}};
      }
    }
    rows.push_back(std::move(one));
  }
  json::object about;
  for (const auto& [key, value] : report.about) about[key] = value;
  const json::object object{{"op", report.op},
                            {"format", info(report.key.format).name},
                            {"precision", report.key.precision == Precision::exact ? "exact" : "fast"},
                            {"about", std::move(about)},
                            {"bad_inputs", json::array(report.bad_inputs.begin(), report.bad_inputs.end())},
                            {"reference_finite", report.reference_finite},
                            {"kernels", std::move(rows)},
                            {"wrong", json::array(report.wrong.begin(), report.wrong.end())},
                            {"conclusion", report.conclusion}};
  return json::serialize(object) + "\n";
}

}  // namespace reckoner::trace
