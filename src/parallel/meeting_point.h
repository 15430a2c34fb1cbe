// MeetingPoint: a barrier for threads that can be closed, so that nobody waits for one that will not come.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/result.h"
#include "parallel/communicator.h"

namespace reckoner {

class MeetingPoint {
 public:
  using Vote = Communicator::Vote;

  explicit MeetingPoint(int ranks) : ranks_(ranks) {}

  // Waits until all ranks have come, and tells each the same: whether all voted yes. No without waiting once it is closed. Either all
  // ranks of a meeting get away with its result, or none: who waits when it is closed was not complete.
  Vote meet(Vote own = Vote::yes);

  // The first reason stays.
  void close(Error why);
  // The reason, once it is closed.
  Status status() const;

 private:
  const int ranks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<std::uint64_t> meetings_{0};  // that were complete
  std::atomic<bool> closed_{false};
  int present_ = 0;
  Vote votes_ = Vote::yes;   // of those present
  Vote result_ = Vote::yes;  // of the last complete meeting
  Status why_;
};

}  // namespace reckoner
