#include "diagnose/trials/processes.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

namespace reckoner::trials {
namespace {

namespace fs = std::filesystem;

std::vector<pid_t> process_ids() {
  std::vector<pid_t> ids;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t id = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), id);
    if (parsed.ec == std::errc() && parsed.ptr == name.data() + name.size()) ids.push_back(id);
  }
  return ids;
}

std::optional<ProcessInfo> read_process(pid_t id) {
  const fs::path folder = fmt::format("/proc/{}", id);
  const std::string stat = read_proc_file(folder / "stat");
  const std::size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  ProcessInfo process{.id = id};
  pid_t parent = 0;
  fields >> process.state >> parent >> process.group;
  std::int64_t pages_all = 0;
  std::int64_t pages_resident = 0;
  std::istringstream(read_proc_file(folder / "statm")) >> pages_all >> pages_resident;
  process.resident_bytes = pages_resident * sysconf(_SC_PAGESIZE);
  process.command = read_proc_file(folder / "cmdline");
  std::replace(process.command.begin(), process.command.end(), '\0', ' ');
  constexpr std::size_t kShown = 80;
  process.command.resize(std::min(process.command.size(), kShown));
  while (process.command.ends_with(' ')) process.command.pop_back();
  return process;
}

bool has_mark(pid_t id, std::string_view mark) {
  const std::string environment = read_proc_file(fmt::format("/proc/{}/environ", id));
  return environment.find(std::string(mark) + '\0') != std::string::npos;  // entries end with a zero byte
}

// The sockets that listen on a port, by inode.
std::set<std::string> listening_sockets(std::int64_t port) {
  std::set<std::string> sockets;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(read_proc_file(table));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      const std::size_t colon = local.rfind(':');
      if (colon == std::string::npos || state != "0A") continue;
      if (std::strtol(local.c_str() + colon + 1, nullptr, 16) == port) sockets.insert(fmt::format("socket:[{}]", inode));
    }
  }
  return sockets;
}

bool holds_one(pid_t id, const std::set<std::string>& sockets) {
  std::error_code error;
  for (fs::directory_iterator file(fmt::format("/proc/{}/fd", id), error), end; !error && file != end; file.increment(error)) {
    std::error_code gone;
    if (sockets.contains(fs::read_symlink(file->path(), gone).string())) return true;
  }
  return false;
}

// Also a port from which connections linger is free: servers say SO_REUSEADDR.
bool can_bind(const std::string& host, std::int64_t& port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int socket_file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_file < 0) return false;
  const int yes = 1;
  setsockopt(socket_file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  socklen_t size = sizeof address;
  const bool bound = bind(socket_file, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(socket_file, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(socket_file);
  if (bound) port = ntohs(address.sin_port);
  return bound;
}

// What a program prints; nothing when it fails.
std::optional<std::string> output_of(const char* command) {
  FILE* pipe = popen(command, "re");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  char buffer[4096];
  for (std::size_t count = 0; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, count);
  return pclose(pipe) == 0 ? std::optional(text) : std::nullopt;
}

bool has_nvidia_smi() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((fs::path(folder) / "nvidia-smi").c_str(), X_OK) == 0) return true;
  }
  return false;
}

// "key : value" of /proc/cpuinfo and /proc/meminfo.
std::string value_of(const std::string& text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string::npos) return {};
  const std::size_t colon = text.find(':', at);
  const std::size_t start = text.find_first_not_of(" \t", colon + 1);
  return text.substr(start, text.find('\n', start) - start);
}

}  // namespace

// By read(), which keeps a failure (ESRCH of a process that has ended since the file was opened) as a state; iterators let it through
// as an exception.
std::string read_proc_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  char buffer[4096];
  while (file.read(buffer, sizeof buffer) || file.gcount() > 0) bytes.append(buffer, static_cast<std::size_t>(file.gcount()));
  return bytes;
}

std::string text(const ProcessInfo& process) { return fmt::format("process {} ({})", process.id, process.command); }

MarkedProcesses find_processes(pid_t group, std::string_view mark) {
  MarkedProcesses found;
  for (const pid_t id : process_ids()) {
    std::optional<ProcessInfo> process = read_process(id);
    if (!process || process->state == 'Z' || id == getpid()) continue;
    if (process->group == group) {
      found.in_group.push_back(std::move(*process));
    } else if (has_mark(id, mark)) {
      found.escaped.push_back(std::move(*process));
    }
  }
  return found;
}

std::optional<PortHolder> port_holder(std::int64_t port) {
  const std::set<std::string> sockets = listening_sockets(port);
  if (sockets.empty()) return std::nullopt;
  for (const pid_t id : process_ids()) {
    if (holds_one(id, sockets)) return PortHolder{.process = read_process(id)};
  }
  return PortHolder{};
}

std::int64_t free_port(const std::string& host, std::int64_t preferred) {
  std::int64_t port = preferred;
  if (port > 0 && can_bind(host, port)) return port;
  port = 0;
  return can_bind(host, port) ? port : 0;
}

std::optional<GpuMemory> gpu_memory(const std::vector<ProcessInfo>& processes) {
  if (!has_nvidia_smi()) return std::nullopt;
  const auto used = output_of("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null");
  const auto by_process = output_of("nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits 2>/dev/null");
  if (!used || !by_process) return std::nullopt;
  constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
  GpuMemory memory;
  std::istringstream gpus(*used);
  for (std::int64_t mebibytes = 0; gpus >> mebibytes;) memory.total_used_bytes += mebibytes * kMebibyte;
  std::istringstream lines(*by_process);
  for (std::string line; std::getline(lines, line);) {
    const pid_t id = static_cast<pid_t>(std::strtol(line.c_str(), nullptr, 10));
    const std::size_t comma = line.find(',');
    const bool is_ours = std::any_of(processes.begin(), processes.end(), [&](const ProcessInfo& process) { return process.id == id; });
    if (is_ours && comma != std::string::npos) memory.used_by_processes_bytes += std::atoll(line.c_str() + comma + 1) * kMebibyte;
  }
  return memory;
}

std::vector<std::pair<std::string, std::string>> describe_machine() {
  std::vector<std::pair<std::string, std::string>> lines;
  utsname system{};
  if (uname(&system) == 0) {
    lines.emplace_back("host", system.nodename);
    lines.emplace_back("system", fmt::format("{} {} {}", system.sysname, system.release, system.machine));
  }
  lines.emplace_back("processor", value_of(read_proc_file("/proc/cpuinfo"), "model name"));
  lines.emplace_back("cores", std::to_string(std::thread::hardware_concurrency()));
  lines.emplace_back("memory", value_of(read_proc_file("/proc/meminfo"), "MemTotal"));
  if (!has_nvidia_smi()) return lines;
  const auto gpus = output_of("nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv,noheader 2>/dev/null");
  std::istringstream each(gpus.value_or(""));
  for (std::string line; std::getline(each, line);) {
    const std::size_t comma = line.find(", ");
    if (comma != std::string::npos) lines.emplace_back("gpu " + line.substr(0, comma), line.substr(comma + 2));
  }
  return lines;
}

}  // namespace reckoner::trials
