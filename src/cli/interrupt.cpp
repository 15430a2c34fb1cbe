#include "cli/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/check.h"

namespace reckoner {
namespace {

// A signal handler can reach nothing but a global.
std::atomic<bool> signalled{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void remember_interrupt(int signal_number) {
  if (!signalled.exchange(true)) return;
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

// Where StopSignals hears of a signal; -1: nowhere.
std::atomic<int> stop_pipe{-1};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void write_to_stop_pipe(int) {
  const int error = errno;
  const char byte = 1;
  (void)!::write(stop_pipe, &byte, 1);
  errno = error;
}

void handle_stop_signals(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
}

void on_interrupt(void (*handler)(int), StoppedBy by) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read that waits for a line must return
  ::sigaction(SIGINT, &action, nullptr);
  if (by == StoppedBy::interrupt_or_terminate) ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard(StoppedBy by) : by_(by) {
  signalled = false;
  on_interrupt(remember_interrupt, by_);
}

InterruptGuard::~InterruptGuard() { on_interrupt(SIG_DFL, by_); }

bool InterruptGuard::interrupted() const { return signalled; }

void InterruptGuard::forget() { signalled = false; }

StopSignals::StopSignals() {
  CHECK(::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) == 0, "a pipe for signals");
  stop_pipe = ends_[1];
  handle_stop_signals(write_to_stop_pipe);
}

StopSignals::~StopSignals() {
  handle_stop_signals(SIG_DFL);
  stop_pipe = -1;
  for (const int end : ends_) ::close(end);
}

bool StopSignals::wait(std::chrono::milliseconds longest) const {
  pollfd one{.fd = ends_[0], .events = POLLIN, .revents = 0};
  constexpr std::int64_t kHour = 3'600'000;
  if (::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(longest.count(), kHour))) <= 0) return false;
  char byte;
  return ::read(ends_[0], &byte, 1) == 1;
}

}  // namespace reckoner
