// From a list of cores, an op's kernels: one a core, in the order of the list.
#pragma once

#include <array>
#include <utility>

#include "ops/kernel.h"

namespace reckoner {

template <class Core>
struct CoreEntry {
  std::string_view name;  // "<format>.<instructions>"; the kernel is "<op>.<format>.<instructions>"
  const Core* core;
  Support (*supports)(const Key& key, const DeviceInfo& device);
};

// "<op>.<name>", in memory that lasts.
template <class Args, const auto& kEntries, std::size_t kIndex>
constexpr auto kernel_name() {
  constexpr std::string_view op = Args::kName;
  constexpr std::string_view name = kEntries[kIndex].name;
  std::array<char, op.size() + 1 + name.size()> joined = {};
  auto* end = joined.data();
  for (const char letter : op) *end++ = letter;
  *end++ = '.';
  for (const char letter : name) *end++ = letter;
  return joined;
}
template <class Args, const auto& kEntries, std::size_t kIndex>
inline constexpr auto kKernelName = kernel_name<Args, kEntries, kIndex>();

// `Runner<core>` gives workspace_bytes() and run() of a kernel that is made of that core.
template <class Args, template <const auto& core> class Runner, const auto& kEntries>
std::vector<Kernel<Args>> kernels_of_cores() {
  return []<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::vector<Kernel<Args>>{{.name = {kKernelName<Args, kEntries, kIndex>.data(), kKernelName<Args, kEntries, kIndex>.size()},
                                      .supports = kEntries[kIndex].supports,
                                      .workspace_bytes = Runner<*kEntries[kIndex].core>::workspace_bytes,
                                      .run = Runner<*kEntries[kIndex].core>::run}...};
  }
  (std::make_index_sequence<std::size(kEntries)>());
}

}  // namespace reckoner
