#include "diagnose/doctor/host.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "base/threads.h"
#include "tensor/device_info.h"

namespace reckoner::doctor {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\n')) line.pop_back();
  return line;
}

std::optional<std::int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// "MemTotal:  131 kB" in bytes; 0 where there is none.
std::int64_t meminfo(const fs::path& root, const std::string& key) {
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kib = 0;
    if (words >> name >> kib && name == key + ":") return kib * 1024;
  }
  return 0;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code failure;
  for (auto entry = fs::directory_iterator(folder, failure); !failure && entry != fs::directory_iterator(); entry.increment(failure))
    all.push_back(entry->path());
  std::sort(all.begin(), all.end());
  return all;
}

int count_numa_nodes(const fs::path& root) {
  const std::vector<fs::path> nodes = entries(root / "sys/devices/system/node");
  const auto is_node = [](const fs::path& path) {
    const std::string name = path.filename().string();
    return name.starts_with("node") && name.size() > 4 && std::isdigit(static_cast<unsigned char>(name[4])) != 0;
  };
  return std::max<int>(1, static_cast<int>(std::count_if(nodes.begin(), nodes.end(), is_node)));
}

void read_cgroup(const fs::path& root, HostFacts& host) {
  host.cgroup_memory_bytes = number_in(root / "sys/fs/cgroup/memory.max");
  std::istringstream words(first_line(root / "sys/fs/cgroup/cpu.max"));
  double quota = 0;
  double period = 0;
  if (words >> quota >> period && period > 0) host.cgroup_cores = quota / period;
}

// The value in brackets of "always [madvise] never".
std::string chosen(const std::string& line) {
  const std::size_t begin = line.find('[');
  const std::size_t end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? "" : line.substr(begin + 1, end - begin - 1);
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ..."
std::string driver_version(const fs::path& root) {
  std::istringstream words(first_line(root / "proc/driver/nvidia/version"));
  for (std::string word; words >> word;) {
    const bool is_version = std::isdigit(static_cast<unsigned char>(word.front())) != 0 && word.find('.') != std::string::npos;
    if (is_version) return word;
  }
  return "";
}

// "Model: 		 NVIDIA H200" in what the driver says of a GPU.
std::string model_of(const fs::path& root, const std::string& address) {
  std::ifstream file(root / "proc/driver/nvidia/gpus" / address / "information");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("Model:")) continue;
    const std::size_t begin = line.find_first_not_of(" \t", 6);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// "0000:40" of ".../pci0000:40/0000:40:01.1/0000:41:00.0"
std::string host_bridge(const fs::path& device) {
  std::error_code failure;
  const fs::path real = fs::canonical(device, failure);
  for (const fs::path& part : real) {
    const std::string name = part.string();
    if (name.starts_with("pci") && name.find(':') != std::string::npos) return name.substr(3);
  }
  return "";
}

// The word at `offset` of a device's configuration; nothing where it cannot be read.
std::optional<std::uint32_t> config_word(const std::string& config, std::size_t offset) {
  if (offset + 4 > config.size()) return std::nullopt;
  std::uint32_t word = 0;
  std::memcpy(&word, config.data() + offset, 4);
  return word;
}

// Whether a bridge sends peer traffic upwards: the control word of its ACS capability. Only root sees that far into the configuration.
Known redirects(const fs::path& device) {
  constexpr std::uint32_t kAcs = 0x000d;
  constexpr std::uint32_t kRedirect = 0x0c;  // P2P request and completion redirect
  std::ifstream file(device / "config", std::ios::binary);
  const std::string config((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (config.size() <= 256) return Known::unknown;
  std::size_t at = 256;
  for (int hops = 0; at >= 256 && hops < 64; ++hops) {
    const std::optional<std::uint32_t> header = config_word(config, at);
    if (!header || *header == 0) return Known::no;
    if ((*header & 0xffff) == kAcs) {
      const std::optional<std::uint32_t> control = config_word(config, at + 4);
      return control && ((*control >> 16) & kRedirect) != 0 ? Known::yes : Known::no;
    }
    at = *header >> 20;
  }
  return Known::no;
}

void read_bus(const fs::path& root, HostFacts& host) {
  for (const fs::path& device : entries(root / "sys/bus/pci/devices")) {
    const std::string kind = first_line(device / "class");
    if (kind.starts_with("0x0604")) {
      const Known found = redirects(device);
      if (found == Known::yes || host.acs == Known::unknown) host.acs = found;
    }
    if (!kind.starts_with("0x03") || first_line(device / "vendor") != "0x10de") continue;
    const std::string address = device.filename().string();
    host.gpus.push_back({.address = address,
                         .model = model_of(root, address),
                         .numa_node = static_cast<int>(number_in(device / "numa_node").value_or(-1)),
                         .speed = first_line(device / "max_link_speed"),
                         .width = static_cast<int>(number_in(device / "max_link_width").value_or(0)),
                         .root = host_bridge(device)});
  }
}

void read_iommu(const fs::path& root, HostFacts& host) {
  std::error_code failure;
  if (fs::exists(root / "sys/kernel/iommu_groups", failure))
    host.iommu = entries(root / "sys/kernel/iommu_groups").empty() ? Known::no : Known::yes;
  const std::string line = " " + first_line(root / "proc/cmdline") + " ";
  host.iommu_passthrough = line.find(" iommu=pt ") != std::string::npos;
}

void read_limits(HostFacts& host) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) host.open_files = static_cast<std::int64_t>(limit.rlim_cur);
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    host.locked_bytes = limit.rlim_cur == RLIM_INFINITY ? -1 : static_cast<std::int64_t>(limit.rlim_cur);
}

}  // namespace

HostFacts read_host(const fs::path& root) {
  HostFacts host{.cpu = detect_cpu().name,
                 .cores = usable_cores(),
                 .numa_nodes = count_numa_nodes(root),
                 .memory_bytes = meminfo(root, "MemTotal"),
                 .available_bytes = meminfo(root, "MemAvailable"),
                 .swap_bytes = meminfo(root, "SwapTotal"),
                 .huge_pages = chosen(first_line(root / "sys/kernel/mm/transparent_hugepage/enabled")),
                 .driver = driver_version(root)};
  read_cgroup(root, host);
  read_limits(host);
  read_bus(root, host);
  read_iommu(root, host);
  return host;
}

}  // namespace reckoner::doctor
