#include "parallel/rank_threads.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace reckoner {
namespace {

// As long as the gap between two steps of a busy engine: a wake-up would be a part of each.
constexpr auto kPollTime = std::chrono::microseconds(200);

}  // namespace

struct RankThreads::State {
  std::atomic<std::uint64_t> rounds{0};  // begun
  std::atomic<int> busy{0};              // threads that have not returned
  Call call = nullptr;
  void* context = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> stopping{false};
  std::vector<std::thread> threads;  // of rank 1 and on

  template <class Condition>
  void wait(const Condition& condition) {
    const auto give_up = std::chrono::steady_clock::now() + kPollTime;
    while (!condition() && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    std::unique_lock lock(mutex);
    changed.wait(lock, condition);
  }
  // Under the lock, so that who is about to sleep cannot miss it.
  template <class Change>
  void change(const Change& what) {
    {
      const std::lock_guard lock(mutex);
      what();
    }
    changed.notify_all();
  }

  void serve(int rank) {
    for (std::uint64_t seen = 0;; ++seen) {
      wait([&] { return rounds.load(std::memory_order_acquire) != seen || stopping.load(std::memory_order_acquire); });
      if (stopping.load(std::memory_order_acquire)) return;
      call(context, rank);
      change([&] { busy.fetch_sub(1, std::memory_order_release); });
    }
  }
};

RankThreads::RankThreads(int ranks) : state_(std::make_unique<State>()) {
  for (int rank = 1; rank < ranks; ++rank) state_->threads.emplace_back([state = state_.get(), rank] { state->serve(rank); });
}

RankThreads::~RankThreads() {
  state_->change([&] { state_->stopping.store(true, std::memory_order_release); });
  for (std::thread& thread : state_->threads) thread.join();
}

void RankThreads::run(Call call, void* context) {
  State& state = *state_;
  state.call = call;
  state.context = context;
  state.busy.store(static_cast<int>(state.threads.size()), std::memory_order_relaxed);
  state.change([&] { state.rounds.fetch_add(1, std::memory_order_release); });
  call(context, 0);
  state.wait([&] { return state.busy.load(std::memory_order_acquire) == 0; });
}

}  // namespace reckoner
