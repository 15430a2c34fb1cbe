// `reckoner serve` as a process, with what it prints.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace reckoner {

class RunningServer {
 public:
  // Starts `reckoner serve MODEL ...`, on any free port unless told, and waits for its address. Throws if it ends without one.
  explicit RunningServer(const std::vector<std::string>& arguments) : RunningServer("models/pocket", arguments) {}
  RunningServer(const std::string& model, const std::vector<std::string>& arguments);
  // Ends it at once.
  ~RunningServer();
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

  const std::string& address() const { return address_; }
  std::uint16_t port() const;
  pid_t process() const { return child_; }
  void signal(int number) const;
  // Waits for its end: the exit status, 128 + signal when a signal ended it.
  int wait();
  // What it has written to stderr so far.
  std::string notes() const;
  bool ended() const { return child_ < 0; }

 private:
  pid_t child_ = -1;
  std::string address_;
  std::string notes_file_;
};

}  // namespace reckoner
