#include <fmt/format.h>

#include <boost/json.hpp>

#include "cli/doctor_report.h"
#include "cli/text_format.h"

namespace reckoner {
namespace {

namespace json = boost::json;
using doctor::Known;
using doctor::Options;
using doctor::Report;

json::value known(Known value) { return value == Known::unknown ? json::value(nullptr) : json::value(value == Known::yes); }

json::array strings(const std::vector<std::string>& values) {
  json::array all;
  for (const std::string& value : values) all.emplace_back(valid_utf8(value));
  return all;
}

json::object hardware_json(const doctor::Hardware& hardware) {
  json::object object = {{"name", hardware.name},
                         {"described", hardware.is_described},
                         {"gpus", hardware.gpus},
                         {"memory_bytes", hardware.memory_bytes},
                         {"no_gpu", hardware.no_gpu}};
  if (hardware.gpus == 0) return object;
  const CudaInfo& gpu = hardware.device.cuda;
  object["compute_capability"] = fmt::format("{}.{}", gpu.major, gpu.minor);
  object["multiprocessors"] = gpu.multiprocessors;
  object["shared_bytes_per_block"] = gpu.shared_bytes_per_block;
  object["memory_gbs"] = gpu.memory_gbs;
  object["driver"] = hardware.device.driver;
  object["profile"] = hardware.profile == nullptr ? json::value(nullptr) : json::value(hardware.profile->name);
  return object;
}

json::object host_json(const doctor::HostFacts& host) {
  json::array gpus;
  for (const doctor::PciGpu& gpu : host.gpus) {
    gpus.push_back(json::object{{"address", gpu.address},
                                {"model", gpu.model},
                                {"numa_node", gpu.numa_node},
                                {"speed", gpu.speed},
                                {"width", gpu.width},
                                {"host_bridge", gpu.root}});
  }
  return {{"cpu", host.cpu},
          {"cores", host.cores},
          {"numa_nodes", host.numa_nodes},
          {"memory_bytes", host.memory_bytes},
          {"available_bytes", host.available_bytes},
          {"swap_bytes", host.swap_bytes},
          {"cgroup_memory_bytes", host.cgroup_memory_bytes ? json::value(*host.cgroup_memory_bytes) : json::value(nullptr)},
          {"cgroup_cores", host.cgroup_cores ? json::value(*host.cgroup_cores) : json::value(nullptr)},
          {"huge_pages", host.huge_pages},
          {"open_files", host.open_files},
          {"locked_bytes", host.locked_bytes < 0 ? json::value(nullptr) : json::value(host.locked_bytes)},
          {"driver", host.driver},
          {"iommu", known(host.iommu)},
          {"iommu_passthrough", host.iommu_passthrough},
          {"acs", known(host.acs)},
          {"peer_access", nullptr},
          {"gpus", std::move(gpus)}};
}

json::object lint_json_of(const lint::LintReport& lint) {
  json::array groups;
  for (const lint::FindingGroup* group : lint.groups()) {
    const lint::Severity severity = group->kind->severity;
    groups.push_back(json::object{{"id", group->kind->id},
                                  {"severity", severity == lint::Severity::error     ? "error"
                                               : severity == lint::Severity::warning ? "warning"
                                                                                     : "note"},
                                  {"count", group->count}});
  }
  return {
      {"errors", lint.count(lint::Severity::error)}, {"warnings", lint.count(lint::Severity::warning)}, {"findings", std::move(groups)}};
}

json::object fit_json(const doctor::Fit& fit) {
  json::array terms;
  for (const doctor::Term& term : fit.terms) terms.push_back(json::object{{"name", term.name}, {"bytes", term.bytes}, {"note", term.note}});
  json::array capacities;
  for (const doctor::Capacity& one : fit.capacities) capacities.push_back(json::object{{"context", one.context}, {"streams", one.streams}});
  return {{"fits", fit.fits},
          {"total_bytes", fit.total()},
          {"available_bytes", fit.available_bytes},
          {"context", fit.context},
          {"streams", fit.streams},
          {"cache_tokens", fit.cache_tokens},
          {"max_sequences", fit.sequences},
          {"longest_context", fit.longest_context},
          {"terms", std::move(terms)},
          {"capacities", std::move(capacities)},
          {"advice", strings(fit.advice)}};
}

json::object speed_json(const Report& report) {
  json::array decode;
  for (const doctor::DecodeSpeed& one : report.decode)
    decode.push_back(json::object{{"streams", one.streams}, {"context", one.context}, {"tokens_per_second", one.tokens_per_second}});
  json::array prefill;
  for (const doctor::PrefillSpeed& one : report.prefill)
    prefill.push_back(json::object{{"context", one.context}, {"tokens_per_second", one.tokens_per_second}});
  const doctor::SpeedBasis& basis = *report.speed_basis;
  return {{"decode", std::move(decode)},
          {"prefill", std::move(prefill)},
          {"assumed", json::object{{"memory_gbs", basis.memory_gbs},
                                   {"memory_share", basis.memory_share},
                                   {"tflops", basis.tflops},
                                   {"compute_share", basis.compute_share},
                                   {"launch_us", basis.launch_us},
                                   {"ranks", basis.ranks}}}};
}

json::array kernels_json(const std::vector<doctor::KernelUse>& kernels) {
  json::array all;
  for (const doctor::KernelUse& use : kernels) {
    all.push_back(json::object{{"op", use.op}, {"format", use.format}, {"kernel", use.kernel}, {"refused", strings(use.refused)}});
  }
  return all;
}

json::array matches_json(const std::vector<findings::FactMatch>& matches) {
  json::array all;
  for (const findings::FactMatch& match : matches) {
    all.push_back(json::object{{"id", match.finding->id},
                               {"title", match.finding->title},
                               {"confidence", findings::name(match.finding->confidence)},
                               {"in_checkpoint", match.in_checkpoint},
                               {"because", strings(match.because)}});
  }
  return all;
}

}  // namespace

std::string doctor_json(const Report& report, const Options& options) {
  json::object object = {{"verdict", doctor::name(report.verdict)},
                         {"problems", strings(report.problems)},
                         {"doubts", strings(report.doubts)},
                         {"hardware", hardware_json(report.hardware)},
                         {"host", host_json(report.host)}};
  if (report.disk) {
    object["disk"] = json::object{{"free_bytes", report.disk->free_bytes},
                                  {"read_gbs", report.disk->read_gbs ? json::value(*report.disk->read_gbs) : json::value(nullptr)},
                                  {"how", report.disk->how}};
  }
  if (report.model) {
    object["model"] = json::object{{"type", report.model->type},
                                   {"layers", report.model->layers},
                                   {"experts", report.model->experts},
                                   {"longest_context", report.model->longest},
                                   {"weight_bytes", report.model->weight_bytes},
                                   {"formats", strings(report.model->formats)}};
  }
  if (report.lint) object["lint"] = lint_json_of(*report.lint);
  if (report.fit) {
    object["tp"] = report.ranks;
    object["memory"] = fit_json(*report.fit);
    object["kernels"] = kernels_json(report.kernels);
    object["serve"] = serve_command(report, options);
  }
  if (report.speed_basis) object["speed"] = speed_json(report);
  object["known_failures"] = matches_json(report.matches);
  object["known_failures_elsewhere"] = matches_json(report.elsewhere);
  return json::serialize(object) + "\n";
}

}  // namespace reckoner
