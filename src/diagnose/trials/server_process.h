// ServerProcess: a command started in a session of its own, watched, and stopped with all that it started.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "diagnose/trials/processes.h"

namespace reckoner::trials {

struct StartOptions {
  std::vector<std::string> command;
  // To add (or, without a value, to leave out of) our own environment.
  std::vector<std::pair<std::string, std::optional<std::string>>> environment;
  std::filesystem::path directory;
  std::filesystem::path log;  // gets stdout and stderr
  std::string mark;           // NAME=VALUE put into the environment, by which processes are known that leave the session
};

// How a process ended: by itself when nothing had told it to.
struct Ending {
  bool by_itself = false;
  bool killed = false;  // it took SIGKILL
  int signal = 0;       // 0: ended with `status`
  int status = 0;
};
std::string text(const Ending& ending);

struct StopReport {
  Ending ending;
  std::vector<std::string> leftovers;  // what was still there after the stop, and what became of it
};

class ServerProcess {
 public:
  // Error: the program cannot be started.
  static Result<std::unique_ptr<ServerProcess>> start(const StartOptions& options);
  // Kills what is left.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  bool is_running();
  std::int64_t peak_memory_bytes() const { return peak_memory_; }
  std::int64_t peak_gpu_bytes() const { return peak_gpu_; }  // -1: no GPU

  // SIGTERM to the session, SIGKILL after `patience`; then the same for what left the session. The port of the server must be free.
  StopReport stop(std::chrono::milliseconds patience, std::int64_t port);

 private:
  ServerProcess(pid_t id, std::string mark);
  void watch();
  bool wait_for_group(std::chrono::milliseconds longest);
  void reap(bool by_itself);

  pid_t id_;  // also the group's
  std::string mark_;
  std::optional<Ending> ending_;
  bool stopped_ = false;
  std::int64_t gpu_before_ = -1;
  std::atomic<std::int64_t> peak_memory_{0};
  std::atomic<std::int64_t> peak_gpu_{-1};
  std::atomic<bool> watching_{true};
  std::thread watcher_;
};

// Ends every process that carries `mark`: what a killed `reckoner trials` left behind. Returns which there were.
std::vector<std::string> end_marked(std::string_view mark);

}  // namespace reckoner::trials
