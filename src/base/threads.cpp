#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace reckoner {
namespace {

// How long an idle worker polls before it sleeps: longer than the gap between two operations of a step, so that a step never pays for
// a wake-up, and short enough to cost nothing when the program waits for its user.
constexpr auto kPollTime = std::chrono::microseconds(200);

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// A loop is open from its start until the caller finds no item left. Workers enter it only while it is open, and the caller waits only for
// those that did: a worker that sleeps, or whose core another program has, delays nobody.
struct ThreadPool::State {
  static constexpr std::uint32_t kOpen = 1u << 31;

  alignas(64) std::atomic<std::int64_t> next{0};         // item to hand out next
  alignas(64) std::atomic<std::uint32_t> gate{0};        // kOpen, plus the number of workers inside
  alignas(64) std::atomic<std::uint64_t> generation{0};  // counts loops; idle workers wait for it to move
  // Of the open loop; written before the gate opens, not changed before all have left.
  std::int64_t items = 0;
  Call call = nullptr;
  void* context = nullptr;

  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<bool> stopping{false};
  std::vector<std::thread> workers;

  void work(int thread) {
    for (std::int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) call(context, item, thread);
  }

  bool enter() {
    std::uint32_t state = gate.load(std::memory_order_relaxed);
    while ((state & kOpen) != 0) {
      if (gate.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
    }
    return false;
  }

  // Returns when a loop after `seen` has started or the pool stops.
  void wait_for_loop(std::uint64_t seen) {
    const auto started = [&] { return generation.load(std::memory_order_acquire) != seen || stopping.load(std::memory_order_acquire); };
    const auto give_up = std::chrono::steady_clock::now() + kPollTime;
    while (std::chrono::steady_clock::now() < give_up) {
      for (int i = 0; i < 64; ++i) {
        if (started()) return;
        pause_briefly();
      }
    }
    std::unique_lock lock(mutex);
    wake.wait(lock, started);
  }

  void serve(int thread) {
    for (std::uint64_t seen = 0;;) {
      wait_for_loop(seen);
      if (stopping.load(std::memory_order_acquire)) return;
      seen = generation.load(std::memory_order_acquire);
      if (!enter()) continue;
      work(thread);
      gate.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  CHECK(threads >= 1);
  for (int thread = 1; thread < threads; ++thread) {
    state_->workers.emplace_back([state = state_.get(), thread] { state->serve(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping.store(true, std::memory_order_release);
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(std::int64_t items, Call call, void* context) {
  State& state = *state_;
  if (items <= 1 || state.workers.empty()) {
    for (std::int64_t item = 0; item < items; ++item) call(context, item, 0);
    return;
  }
  state.items = items;
  state.call = call;
  state.context = context;
  state.next.store(0, std::memory_order_relaxed);
  state.gate.store(State::kOpen, std::memory_order_release);
  {
    // Under the lock, so that a worker about to sleep cannot miss it.
    const std::lock_guard lock(state.mutex);
    state.generation.fetch_add(1, std::memory_order_release);
  }
  state.wake.notify_all();
  state.work(0);
  state.gate.fetch_and(~State::kOpen, std::memory_order_relaxed);
  for (int spins = 0; state.gate.load(std::memory_order_acquire) != 0; ++spins) {
    // A worker that lost its core to another program must be able to get it back.
    if (spins % 1024 == 1023) std::this_thread::yield();
    pause_briefly();
  }
}

namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Cores that a container's CPU quota allows, or a large number when there is none (cgroup v2: "max 100000" or "200000 100000").
int quota_cores() {
  const std::string line = first_line("/sys/fs/cgroup/cpu.max");
  const std::size_t space = line.find(' ');
  if (space == std::string::npos || line.starts_with("max")) return 1 << 20;
  const double quota = std::atof(line.c_str());
  const double period = std::atof(line.c_str() + space + 1);
  return period > 0 ? std::max(1, static_cast<int>(quota / period)) : 1 << 20;
}

}  // namespace

int usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::set<std::string> cores;  // hyper-threads of one core share one sibling list
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string siblings = first_line("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? std::to_string(cpu) : siblings);
  }
  return std::clamp(static_cast<int>(cores.size()), 1, quota_cores());
}

}  // namespace reckoner
