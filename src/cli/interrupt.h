// Ctrl-C while an answer is being written: it ends the answer, not the program.
#pragma once

#include <chrono>
#include <cstdint>

namespace reckoner {

// What stops a command that has something to put away first. SIGTERM too: where it started other programs.
enum class StoppedBy : std::uint8_t { interrupt, interrupt_or_terminate };

// While it lives, the first of these signals is remembered; a second one ends the program as if nobody had caught it.
class InterruptGuard {
 public:
  explicit InterruptGuard(StoppedBy by = StoppedBy::interrupt);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
  void forget();

 private:
  StoppedBy by_;
};

// While it lives, SIGINT and SIGTERM are what wait() waits for; then they end the program again.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Whether one has come, at the latest after this long; each is told once.
  bool wait(std::chrono::milliseconds longest) const;

 private:
  int ends_[2];  // of a pipe: the handler writes, wait() reads
};

}  // namespace reckoner
