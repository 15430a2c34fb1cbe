// The doctor's screen: at most 100 columns, and about 45 lines.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cli/doctor_report.h"
#include "cli/text_format.h"

namespace reckoner {
namespace {

using doctor::HostFacts;
using doctor::Known;
using doctor::Options;
using doctor::Report;

constexpr std::size_t kLabel = 14;

std::string bytes(std::int64_t count) { return bytes_text(static_cast<double>(count)); }

// "label         text", the text wrapped below itself.
std::string row(std::string_view label, std::string_view text) { return wrapped(fmt::format("  {:<{}}", label, kLabel), text); }

std::string tokens_text(std::int64_t tokens) {
  return tokens >= 8192 && tokens % 1024 == 0 ? fmt::format("{}k", tokens / 1024) : std::to_string(tokens);
}

std::string gpu_text(const Report& report) {
  const doctor::Hardware& hardware = report.hardware;
  const CudaInfo& gpu = hardware.device.cuda;
  std::string text = fmt::format("{}: {} each at {:.0f} GB/s, compute capability {}.{}, {} KiB shared a block", hardware.name,
                                 bytes(hardware.memory_bytes), gpu.memory_gbs, gpu.major, gpu.minor, gpu.shared_bytes_per_block / 1024);
  if (hardware.is_described) text += " (described)";
  if (!hardware.device.driver.empty()) text += ", driver " + hardware.device.driver;
  return text;
}

// How the bus sees the GPUs: "2 at 32.0 GT/s x16, NUMA nodes 0 and 1".
std::string bus_text(const HostFacts& host) {
  std::map<std::string, int> kinds;
  std::set<std::string> roots;
  std::set<int> nodes;
  for (const doctor::PciGpu& gpu : host.gpus) {
    ++kinds[fmt::format("{} x{}", gpu.speed, gpu.width)];
    roots.insert(gpu.root);
    nodes.insert(gpu.numa_node);
  }
  std::vector<std::string> parts;
  for (const auto& [kind, count] : kinds) parts.push_back(fmt::format("{} GPUs at {}", count, kind));
  parts.push_back(fmt::format("{} host bridge{}", roots.size(), roots.size() == 1 ? "" : "s"));
  parts.push_back(fmt::format("NUMA node{} {}", nodes.size() == 1 ? "" : "s", fmt::join(nodes, ", ")));
  parts.emplace_back("peer access unknown");
  return fmt::format("{}", fmt::join(parts, ", "));
}

// "64.2", "2450": three digits, and no exponent.
std::string rate_text(double rate) { return rate < 1000 ? fmt::format("{:.3g}", rate) : fmt::format("{:.0f}", std::round(rate / 10) * 10); }

std::string yes_no(Known known) { return known == Known::yes ? "on" : known == Known::no ? "off" : "unknown"; }

std::string host_text(const Report& report) {
  const HostFacts& host = report.host;
  std::string memory = fmt::format("{} of memory, {} available", bytes(host.memory_bytes), bytes(host.available_bytes));
  if (host.cgroup_memory_bytes) memory += fmt::format(", this group may have {}", bytes(*host.cgroup_memory_bytes));
  std::string text = row("host", fmt::format("{}, {} cores usable, {} NUMA node{}; {}", host.cpu, host.cores, host.numa_nodes,
                                             host.numa_nodes == 1 ? "" : "s", memory));
  text += row("limits", fmt::format("{} open files, {} lockable; huge pages {}; IOMMU {}{}, ACS {}", host.open_files,
                                    host.locked_bytes < 0 ? "any memory" : bytes(host.locked_bytes),
                                    host.huge_pages.empty() ? "unknown" : host.huge_pages, yes_no(host.iommu),
                                    host.iommu_passthrough ? " (pt)" : "", yes_no(host.acs)));
  if (!host.gpus.empty()) text += row("PCIe", bus_text(host));
  return text;
}

std::string machine_text(const Report& report) {
  std::string text = "machine\n";
  if (report.hardware.gpus > 0) {
    text += row(report.hardware.gpus == 1 ? "GPU" : "GPUs", gpu_text(report));
  } else if (!report.hardware.no_gpu.empty()) {
    text += row("GPU", "none used: " + report.hardware.no_gpu);
  }
  if (!report.hardware.is_described) text += host_text(report);
  if (report.disk) {
    const std::string rate = report.disk->read_gbs ? fmt::format("reads {:.2f} GB/s ({})", *report.disk->read_gbs, report.disk->how)
                                                   : "how quickly it reads is unknown: " + report.disk->how;
    text += row("disk", fmt::format("{} free where the model is; {}", bytes(report.disk->free_bytes), rate));
  }
  return text;
}

std::string checkpoint_text(const Report& report) {
  std::string text = "checkpoint\n";
  if (report.model) {
    const doctor::ModelFacts& model = *report.model;
    text += row("model", fmt::format("{}, {} layers{}, {} of weights in {}, made for {} tokens", model.type, model.layers,
                                     model.experts > 0 ? fmt::format(", {} experts", model.experts) : "", bytes(model.weight_bytes),
                                     fmt::join(model.formats, ", "), model.longest));
  }
  if (!report.lint) return text;
  std::vector<std::string> ids;
  for (const lint::FindingGroup* group : report.lint->groups()) {
    if (group->kind->severity != lint::Severity::note) ids.push_back(fmt::format("{} ({})", group->kind->id, group->count));
  }
  return text + row("lint", fmt::format("{} errors, {} warnings, {} notes{}", report.lint->count(lint::Severity::error),
                                        report.lint->count(lint::Severity::warning), report.lint->count(lint::Severity::note),
                                        ids.empty() ? "" : fmt::format(": {}", fmt::join(ids, ", "))));
}

// Terms of one kind are one line: "weights" with the largest of them named.
struct TermGroup {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<std::string> parts;
  std::int64_t other_bytes = 0;  // of parts that are too small to name
};

std::vector<TermGroup> grouped(const std::vector<doctor::Term>& terms) {
  std::vector<TermGroup> groups;
  for (const doctor::Term& term : terms) {
    if (term.bytes == 0) continue;
    const std::size_t colon = term.name.find(": ");
    const std::string name = term.name.substr(0, colon);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const TermGroup& other) { return other.name == name; });
    if (group == groups.end()) group = groups.insert(groups.end(), {.name = name});
    group->bytes += term.bytes;
    if (colon == std::string::npos) {
      if (!term.note.empty()) group->parts.push_back(term.note);
    } else if (term.bytes < group->bytes / 50) {  // the largest come first
      group->other_bytes += term.bytes;
    } else {
      group->parts.push_back(
          fmt::format("{} {}{}", term.name.substr(colon + 2), bytes(term.bytes), term.note.empty() ? "" : " (" + term.note + ")"));
    }
  }
  for (TermGroup& group : groups) {
    if (group.other_bytes > 0 && !group.parts.empty()) group.parts.push_back("other " + bytes(group.other_bytes));
  }
  return groups;
}

std::string fit_text(const Report& report) {
  const doctor::Fit& fit = *report.fit;
  std::string text = fmt::format("memory{}, for {} request{} of {} tokens\n",
                                 report.ranks > 1 ? fmt::format(" of each of {} GPUs (--tp {})", report.ranks, report.ranks) : "",
                                 fit.streams, fit.streams == 1 ? "" : "s", fit.context);
  for (const TermGroup& group : grouped(fit.terms)) {
    text += wrapped(fmt::format("  {:<{}}{:>8}  ", group.name, kLabel + 4, bytes(group.bytes)),
                    fmt::format("{}", fmt::join(group.parts, ", ")));
  }
  std::string total = fit.available_bytes == 0 ? "how much is free is not known"
                      : fit.fits ? fmt::format("of {}: fits, {} left", bytes(fit.available_bytes), bytes(fit.available_bytes - fit.total()))
                                 : fmt::format("of {}: DOES NOT FIT", bytes(fit.available_bytes));
  text += wrapped(fmt::format("  {:<{}}{:>8}  ", "in all", kLabel + 4, bytes(fit.total())), total);
  std::vector<std::string> rooms;
  for (const doctor::Capacity& one : fit.capacities)
    rooms.push_back(fmt::format("{} of {}", one.streams >= 1024 ? "1024+" : std::to_string(one.streams), tokens_text(one.context)));
  if (fit.available_bytes > 0) text += row("room for", fmt::format("requests at a time: {}", fmt::join(rooms, ", ")));
  for (const std::string& advice : fit.advice) text += row("would fit", advice);
  return text;
}

std::string speed_text(const Report& report) {
  if (!report.speed_basis || report.decode.empty()) return "";
  const doctor::SpeedBasis& basis = *report.speed_basis;
  std::vector<std::string> decode;
  for (const doctor::DecodeSpeed& one : report.decode)
    decode.push_back(fmt::format("{} for {} at {}", rate_text(one.tokens_per_second), one.streams, tokens_text(one.context)));
  std::string text = "speed, predicted\n";
  text += row("decode", fmt::format("tokens/s: {}", fmt::join(decode, ", ")));
  std::vector<std::string> prefill;
  for (const doctor::PrefillSpeed& one : report.prefill)
    prefill.push_back(fmt::format("{} behind {}", rate_text(one.tokens_per_second), tokens_text(one.context)));
  text += row("prefill", prefill.empty() ? "not predicted" : fmt::format("tokens/s: {}", fmt::join(prefill, ", ")));
  std::string how =
      fmt::format("{:.0f} % of {}{:.0f} GB/s", basis.memory_share * 100, report.hardware.gpus > 0 ? "" : "measured ", basis.memory_gbs);
  if (basis.tflops > 0) how += fmt::format(", {:.0f} % of {:.3g} TFLOPS", basis.compute_share * 100, basis.tflops);
  if (basis.launch_us > 0) how += fmt::format(", {} us a call", basis.launch_us);
  if (basis.ranks > 1)
    how += fmt::format(", {} all-reduces over {}", 2 * basis.layers, basis.link == doctor::Link::nvlink ? "NVLink" : "PCIe");
  return text + row("assumed", how);
}

std::string kernels_text(const Report& report) {
  if (report.kernels.empty()) return "";
  std::set<std::string> ops;
  std::map<std::string, std::set<std::string>> heavy;  // of weights: kernel and the formats that it serves
  std::set<std::string> refused;
  for (const doctor::KernelUse& use : report.kernels) {
    ops.insert(use.op);
    if (!use.format.empty()) heavy[use.kernel].insert(use.format);
    refused.insert(use.refused.begin(), use.refused.end());
  }
  std::vector<std::string> parts;
  for (const auto& [kernel, formats] : heavy) parts.push_back(fmt::format("{} ({})", kernel, fmt::join(formats, ", ")));
  std::string text = "kernels\n" + row("serve", fmt::format("all {} ops; weights: {}", ops.size(), fmt::join(parts, ", ")));
  if (refused.empty()) return text;
  return text + row("refused",
                    fmt::format("{}: {}{}", refused.size(), *refused.begin(), refused.size() > 1 ? "; `reckoner kernels` lists all" : ""));
}

std::string findings_text(const Report& report) {
  constexpr std::size_t kShown = 3;
  constexpr std::size_t kElsewhere = 6;
  if (report.matches.empty() && report.elsewhere.empty()) return "";
  std::string text = "known failures (`reckoner findings show ID`)\n";
  for (std::size_t i = 0; i < std::min(kShown, report.matches.size()); ++i) {
    const findings::Finding& finding = *report.matches[i].finding;
    text += wrapped("  ", fmt::format("{}: {}", finding.id, finding.title));
  }
  std::vector<std::string> more;
  for (std::size_t i = kShown; i < report.matches.size(); ++i) more.push_back(report.matches[i].finding->id);
  if (!more.empty()) text += row("also", fmt::format("{}", fmt::join(more, ", ")));
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < std::min(kElsewhere, report.elsewhere.size()); ++i) ids.push_back(report.elsewhere[i].finding->id);
  if (report.elsewhere.size() > kElsewhere) ids.push_back(fmt::format("{} more", report.elsewhere.size() - kElsewhere));
  if (!ids.empty()) text += row("other servers", fmt::format("{}", fmt::join(ids, ", ")));
  return text;
}

std::string verdict_text(const Report& report, const Options& options) {
  std::string text = "verdict: ";
  if (report.verdict == doctor::Verdict::impossible) text += "it will not work as asked\n";
  if (report.verdict == doctor::Verdict::doubtful) text += report.fit ? "it will work; look at these first\n" : "look at these first\n";
  if (report.verdict == doctor::Verdict::ready) text += report.fit ? "ready\n" : "nothing speaks against this machine\n";
  for (const std::string& problem : report.problems) text += wrapped("  - ", valid_utf8(problem));
  for (const std::string& doubt : report.doubts) text += wrapped("  - ", valid_utf8(doubt));
  if (report.fit && report.problems.empty()) text += row("serve it", serve_command(report, options));
  return text;
}

}  // namespace

std::string serve_command(const Report& report, const Options& options) {
  std::string command = "reckoner serve " + options.model;
  if (report.ranks > 1) command += fmt::format(" --tp {}", report.ranks);
  command += fmt::format(" --context {} --cache-tokens {}", report.fit->context, report.fit->cache_tokens);
  if (report.fit->sequences != 64) command += fmt::format(" --max-sequences {}", report.fit->sequences);
  if (options.fit.chunk != 512) command += fmt::format(" --chunk {}", options.fit.chunk);
  if (options.fit.precision == Precision::exact) command += " --precision exact";
  if (options.fit.cache_type == KvCacheType::fp8) command += " --kv-cache-dtype fp8";
  if (options.fit.cache_type == KvCacheType::bf16) command += " --kv-cache-dtype bf16";
  return command;
}

std::string doctor_text(const Report& report, const Options& options) {
  std::vector<std::string> parts = {machine_text(report)};
  if (!options.model.empty()) parts.push_back(checkpoint_text(report));
  if (report.fit) {
    parts.push_back(fit_text(report));
    parts.push_back(speed_text(report));
    parts.push_back(kernels_text(report));
  }
  parts.push_back(findings_text(report));
  parts.push_back(verdict_text(report, options));
  std::string text;
  for (const std::string& part : parts) text += part.empty() || text.empty() ? part : "\n" + part;
  return text;
}

}  // namespace reckoner
