// What the system says of this machine: read from /proc and /sys, nothing is changed and no privilege is needed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"

namespace reckoner::doctor {

enum class Known : std::uint8_t { no, yes, unknown };

// A GPU as the bus shows it.
struct PciGpu {
  std::string address;  // "0000:41:00.0"
  std::string model;    // as its driver calls it; empty: no driver is loaded
  int numa_node = -1;   // -1: the system has one, or does not say
  std::string speed;    // "32.0 GT/s PCIe"; of the link as it may be (max)
  int width = 0;        // lanes, the same
  std::string root;     // "0000:40": the host bridge that it hangs at
};

struct HostFacts {
  std::string cpu;
  int cores = 0;  // that this process may use
  int numa_nodes = 1;
  std::int64_t memory_bytes = 0;     // of the machine
  std::int64_t available_bytes = 0;  // of it, not taken
  std::int64_t swap_bytes = 0;
  std::optional<std::int64_t> cgroup_memory_bytes = {};  // a limit of this process's group
  std::optional<double> cgroup_cores = {};
  std::string huge_pages;         // of transparent ones: "always", "madvise", "never"
  std::int64_t open_files = 0;    // this process may have
  std::int64_t locked_bytes = 0;  // -1: no limit
  std::string driver;             // of the GPUs: "580.95.05"; empty: none is loaded
  std::vector<PciGpu> gpus;
  Known iommu = Known::unknown;
  bool iommu_passthrough = false;  // iommu=pt
  Known acs = Known::unknown;      // redirects peer traffic at a bridge; only root can read it
};

// `root`: "/", or a copy of the files for tests.
HostFacts read_host(const std::filesystem::path& root);

struct DiskFacts {
  std::int64_t free_bytes = 0;
  std::optional<double> read_gbs = {};  // 1e9 bytes a second
  std::string how;                      // it was measured, or why not
};
// Of the disk that `folder` is on. Reads at most 256 MB of its largest file, for at most two seconds, past the page cache.
DiskFacts measure_disk(const std::filesystem::path& folder);

// Of the memory: reads at most 256 MB with all threads of the pool for a tenth of a second. In 1e9 bytes a second.
double measure_memory_gbs(ThreadPool& pool);

}  // namespace reckoner::doctor
