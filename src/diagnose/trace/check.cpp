#include "diagnose/trace/check.h"

#include <fmt/format.h>

namespace reckoner::trace {
namespace {

AnyCaptured capture(const OpRun& run, HostReader& reader, const WeightIndex& weights) {
  const HostWeight host_weight = [&](const Weight& weight) { return weights.on_host(weight); };
  return std::visit([&](const auto* args) -> AnyCaptured { return captured(*args, reader, host_weight); }, run.args);
}

template <class Args>
OutputDifference against_reference(const Captured<Args>& before, const Captured<Args>& after) {
  const Captured<Args> expected = copy_of(before);
  reference(expected.args);
  return compare_outputs(before.args, expected.args, after.args);
}

}  // namespace

std::string WrongCall::sentence() const {
  const std::string error =
      std::isfinite(difference.worst) ? fmt::format("{:.3g} times what is allowed", difference.worst) : "where the reference must be met";
  return fmt::format("step {}, {}: {} is wrong: {} row {}, column {} is {:.6g}, the reference has {:.6g} ({})", step, call.text(), kernel,
                     difference.output, difference.row, difference.column, difference.found, difference.expected, error);
}

void StepCheck::attach(StepProbe& probe) {
  probe.each_before = [this](const OpRun& run, std::int64_t, HostReader& reader) { before_.emplace(capture(run, reader, weights_)); };
  probe.each = [this](const OpRun& run, const CallStats& stats, HostReader& reader) { compare(stats, capture(run, reader, weights_)); };
}

void StepCheck::compare(const CallStats& stats, const AnyCaptured& after) {
  ++calls_;
  const OutputDifference difference = std::visit(
      [&](const auto& before) { return against_reference(before, std::get<std::remove_cvref_t<decltype(before)>>(after)); }, *before_);
  if (difference.agrees()) {
    if (difference.worst > worst_) worst_place_ = stats.name.text();
    worst_ = std::max(worst_, difference.worst);
    return;
  }
  ++wrong_calls_;
  if (first_) return;
  first_.emplace(WrongCall{.step = step_, .call = stats.name, .kernel = stats.kernel, .difference = difference});
  if (wish_.path.empty()) return;
  BundleAbout about = wish_.about;
  about.merge(BundleAbout{{"step", std::to_string(step_)},
                          {"place", stats.name.text()},
                          {"layer", std::to_string(stats.name.layer)},
                          {"block", stats.name.block},
                          {"kernel", stats.kernel},
                          {"cause", "kernel"},
                          {"origin", first_->sentence()}});
  BundleLimits limits = wish_.limits;
  limits.column = difference.column;
  const Status written = write_bundle(wish_.path, *before_, after, about, limits);
  if (written.ok()) first_->bundle = wish_.path.string();
  if (!written.ok()) first_->bundle_error = written.error().what;
}

}  // namespace reckoner::trace
