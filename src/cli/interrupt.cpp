#include "cli/interrupt.h"

#include <signal.h>

#include <atomic>

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

void on_interrupt(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read that waits for a line must return
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  signalled = false;
  on_interrupt(remember_interrupt);
}

InterruptGuard::~InterruptGuard() { on_interrupt(SIG_DFL); }

bool InterruptGuard::interrupted() const { return signalled; }

void InterruptGuard::forget() { signalled = false; }

}  // namespace reckoner
