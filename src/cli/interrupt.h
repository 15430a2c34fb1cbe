// Ctrl-C while an answer is being written: it ends the answer, not the program.
#pragma once

namespace reckoner {

// While it lives, the first SIGINT is remembered; a second one ends the program as if nobody had caught it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
  void forget();
};

}  // namespace reckoner
