#include "diagnose/trials/server_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace reckoner::trials {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPoll{20};
constexpr milliseconds kSampleEvery{250};
constexpr int kSamplesAGpuSample = 8;  // asking the driver takes a program of its own
constexpr milliseconds kAfterKill{3000};
constexpr std::int64_t kGpuSlackBytes = std::int64_t{256} << 20;

std::vector<std::string> environment_of(const StartOptions& options) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const std::string_view name = variable.substr(0, variable.find('='));
    const bool replaced =
        std::any_of(options.environment.begin(), options.environment.end(), [&](const auto& own) { return own.first == name; });
    if (!replaced) variables.emplace_back(variable);
  }
  for (const auto& [name, value] : options.environment) {
    if (value) variables.push_back(name + "=" + *value);
  }
  variables.push_back(options.mark);
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Its end, if it has ended; it stays to be waited for, so that its number names nobody else.
bool has_ended(pid_t id) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(id), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == id;
}

void kill_all(const std::vector<ProcessInfo>& processes, int number) {
  for (const ProcessInfo& process : processes) kill(process.id, number);
}

// Those that carry the mark, told to end, then killed. Returns which there were.
std::vector<ProcessInfo> end_escaped(pid_t group, std::string_view mark, milliseconds patience) {
  std::vector<ProcessInfo> first = find_processes(group, mark).escaped;
  if (first.empty()) return first;
  kill_all(first, SIGTERM);
  const Clock::time_point deadline = Clock::now() + patience;
  std::vector<ProcessInfo> left = first;
  while (!left.empty() && Clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
    left = find_processes(group, mark).escaped;
  }
  kill_all(left, SIGKILL);
  return first;
}

}  // namespace

std::string text(const Ending& ending) {
  const std::string how =
      ending.signal != 0 ? fmt::format("signal {} ({})", ending.signal, strsignal(ending.signal)) : fmt::format("status {}", ending.status);
  if (ending.by_itself) return "by itself with " + how;
  return ending.killed ? "killed: it did not end on SIGTERM" : "on SIGTERM, " + how;
}

Result<std::unique_ptr<ServerProcess>> ServerProcess::start(const StartOptions& options) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, options.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_addchdir_np(&actions, options.directory.c_str());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  std::vector<std::string> command = options.command;
  std::vector<std::string> environment = environment_of(options);
  pid_t id = -1;
  const std::optional<GpuMemory> gpu = gpu_memory({});
  const int failure =
      posix_spawnp(&id, command.front().c_str(), &actions, &attributes, pointers_to(command).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failure != 0) {
    return Error{fmt::format("'{}' cannot be started in {}: {}", command.front(), options.directory.string(), std::strerror(failure)),
                 "check target.command and target.directory of the trial file"};
  }
  std::unique_ptr<ServerProcess> process(new ServerProcess(id, options.mark));
  if (gpu) process->gpu_before_ = gpu->total_used_bytes;
  return process;
}

ServerProcess::ServerProcess(pid_t id, std::string mark) : id_(id), mark_(std::move(mark)), watcher_([this] { watch(); }) {}

ServerProcess::~ServerProcess() {
  watching_ = false;
  watcher_.join();
  if (stopped_) return;
  kill(-id_, SIGKILL);
  reap(ending_.has_value());
  static_cast<void>(end_escaped(id_, mark_, milliseconds(0)));
}

void ServerProcess::watch() {
  for (int sample = 0; watching_; ++sample) {
    const MarkedProcesses processes = find_processes(id_, mark_);
    std::vector<ProcessInfo> all = processes.in_group;
    all.insert(all.end(), processes.escaped.begin(), processes.escaped.end());
    std::int64_t resident = 0;
    for (const ProcessInfo& process : all) resident += process.resident_bytes;
    peak_memory_ = std::max<std::int64_t>(peak_memory_, resident);
    const bool is_gpu_turn = sample % kSamplesAGpuSample == 0;
    if (const std::optional<GpuMemory> gpu = is_gpu_turn ? gpu_memory(all) : std::nullopt) {
      peak_gpu_ = std::max<std::int64_t>(peak_gpu_, gpu->used_by_processes_bytes);
    }
    for (milliseconds slept{0}; slept < kSampleEvery && watching_; slept += kPoll) std::this_thread::sleep_for(kPoll);
  }
}

bool ServerProcess::is_running() {
  if (!ending_ && has_ended(id_)) ending_ = Ending{.by_itself = true};
  return !ending_;
}

// Whether all of the group are gone within this time. The first one stays a zombie until then, which is none of the group here.
bool ServerProcess::wait_for_group(milliseconds longest) {
  const Clock::time_point deadline = Clock::now() + longest;
  while (!find_processes(id_, mark_).in_group.empty()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

void ServerProcess::reap(bool by_itself) {
  int status = 0;
  while (waitpid(id_, &status, 0) < 0 && errno == EINTR) {}
  if (!ending_) ending_ = Ending{};
  ending_->by_itself = by_itself;
  ending_->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  ending_->status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

StopReport ServerProcess::stop(milliseconds patience, std::int64_t port) {
  StopReport report;
  const bool by_itself = !is_running();
  kill(-id_, SIGTERM);
  const bool obeyed = wait_for_group(patience);
  if (!obeyed) {
    const std::vector<ProcessInfo> stubborn = find_processes(id_, mark_).in_group;
    kill(-id_, SIGKILL);
    for (const ProcessInfo& process : stubborn) {
      report.leftovers.push_back(
          fmt::format("{} ignored SIGTERM for {:.1f} s and was killed", text(process), static_cast<double>(patience.count()) / 1e3));
    }
    if (!wait_for_group(kAfterKill)) {
      for (const ProcessInfo& process : find_processes(id_, mark_).in_group) {
        report.leftovers.push_back(fmt::format("{} is still there after SIGKILL (state {})", text(process), process.state));
      }
    }
  }
  reap(by_itself);
  ending_->killed = !obeyed && !by_itself;
  report.ending = *ending_;
  for (const ProcessInfo& process : end_escaped(id_, mark_, patience)) {
    report.leftovers.push_back(text(process) + " had left the server's process group and was ended after it");
  }
  watching_ = false;
  stopped_ = true;
  // What was killed gives its port back in a moment.
  const Clock::time_point deadline = Clock::now() + milliseconds(1000);
  std::optional<PortHolder> holder = port_holder(port);
  while (holder && Clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
    holder = port_holder(port);
  }
  if (holder) {
    report.leftovers.push_back(
        fmt::format("port {} is still taken by {}", port, holder->process ? text(*holder->process) : "a process of another user"));
  }
  if (gpu_before_ >= 0) {
    const std::optional<GpuMemory> gpu = gpu_memory({});
    if (gpu && gpu->total_used_bytes > gpu_before_ + kGpuSlackBytes) {
      report.leftovers.push_back(fmt::format("{:.2f} GB of GPU memory more in use than before the start",
                                             static_cast<double>(gpu->total_used_bytes - gpu_before_) / 1e9));
    }
  }
  return report;
}

std::vector<std::string> end_marked(std::string_view mark) {
  std::vector<std::string> ended;
  for (const ProcessInfo& process : end_escaped(-1, mark, milliseconds(2000))) ended.push_back(text(process));
  return ended;
}

}  // namespace reckoner::trials
