// What /proc says about processes, ports and memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reckoner::trials {

// The bytes of a file of /proc, which has no size. Nothing more if reading fails: processes end while one looks at them.
std::string read_proc_file(const std::filesystem::path& path);

struct ProcessInfo {
  pid_t id = 0;
  pid_t group = 0;
  char state = '?';  // as in /proc/PID/stat: R, S, D, Z, ...
  std::int64_t resident_bytes = 0;
  std::string command;  // the beginning of its command line
};
std::string text(const ProcessInfo& process);  // "process 123 (python3 server.py)"

// The processes of this group, and those that carry `mark` in their environment although they have left it; without zombies.
struct MarkedProcesses {
  std::vector<ProcessInfo> in_group;
  std::vector<ProcessInfo> escaped;
};
MarkedProcesses find_processes(pid_t group, std::string_view mark);

// The process that listens on this TCP port, as far as /proc lets us see.
struct PortHolder {
  std::optional<ProcessInfo> process;  // nothing: it belongs to somebody else
};
// Nothing: nobody listens there.
std::optional<PortHolder> port_holder(std::int64_t port);
// A port that can be bound now, `preferred` if it can; 0: none.
std::int64_t free_port(const std::string& host, std::int64_t preferred);

// Memory in use on the GPUs, all together and by the processes given. Nothing: there is no nvidia-smi, or it does not answer.
struct GpuMemory {
  std::int64_t total_used_bytes = 0;
  std::int64_t used_by_processes_bytes = 0;
};
std::optional<GpuMemory> gpu_memory(const std::vector<ProcessInfo>& processes);
// What stands before the first trial of a run: "host", "system", "processor", "cores", "memory", "gpu 0", ...
std::vector<std::pair<std::string, std::string>> describe_machine();

}  // namespace reckoner::trials
