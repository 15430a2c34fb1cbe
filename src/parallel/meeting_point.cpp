#include "parallel/meeting_point.h"

#include <chrono>
#include <thread>

namespace reckoner {
namespace {

// Ranks come within microseconds of each other as a rule: a wake-up would take longer than the wait.
constexpr auto kPollTime = std::chrono::microseconds(50);

}  // namespace

MeetingPoint::Vote MeetingPoint::meet(Vote own) {
  std::unique_lock lock(mutex_);
  if (closed_.load(std::memory_order_relaxed)) return Vote::no;
  if (own == Vote::no) votes_ = Vote::no;
  const std::uint64_t before = meetings_.load(std::memory_order_relaxed);
  if (++present_ == ranks_) {
    result_ = votes_;
    votes_ = Vote::yes;
    present_ = 0;
    meetings_.store(before + 1, std::memory_order_release);
    const Vote result = result_;
    lock.unlock();
    changed_.notify_all();
    return result;
  }
  lock.unlock();
  const auto over = [&] { return meetings_.load(std::memory_order_acquire) != before || closed_.load(std::memory_order_acquire); };
  const auto give_up = std::chrono::steady_clock::now() + kPollTime;
  while (!over() && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  lock.lock();
  changed_.wait(lock, over);
  // The next meeting cannot be complete before this rank has come to it, so the result is still this one's.
  return meetings_.load(std::memory_order_relaxed) != before ? result_ : Vote::no;
}

void MeetingPoint::close(Error why) {
  {
    const std::lock_guard lock(mutex_);
    if (why_.ok()) why_ = std::move(why);
    closed_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

Status MeetingPoint::status() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

}  // namespace reckoner
