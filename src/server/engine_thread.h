// EngineThread: the one thread that owns the engine. Requests come in through a bounded queue; what happens to each goes out through its
// own sink. The only file of the server, with its .cpp, that calls the engine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"

namespace reckoner {

// What a step brought for one request, or why the engine did not take it.
struct StreamUpdate {
  std::vector<TokenEvent> events;
  std::optional<Error> refused;
};
// Called on the engine thread: it hands over and returns.
using StreamSink = std::function<void(StreamUpdate)>;

using Ticket = std::int64_t;

// What the engine does, for metrics.
struct EngineLoad {
  std::int64_t running = 0;  // now: requests that the engine has begun
  std::int64_t waiting = 0;  // now
  EngineStats engine;        // after its last step
  double last_step_s = 0;
};

class EngineThread {
 public:
  // At most `max_queued` requests wait while as many run as the engine takes.
  EngineThread(std::unique_ptr<Engine> engine, std::int64_t max_queued);
  // Stops after the step at hand; requests that are left get no further update.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // From any thread. Nothing when the queue is full: all of `requests` are taken, or none.
  std::optional<std::vector<Ticket>> submit(std::vector<std::pair<Request, StreamSink>> requests);
  // From any thread: honoured before the next step; no update follows.
  void cancel(Ticket ticket);
  // From any thread: `done` is called with the pages that became free, on the engine thread.
  void flush_cache(std::function<void(std::int64_t)> done);
  void stop();

  EngineLoad load() const;

 private:
  struct Submission {
    Ticket ticket;
    Request request;
    StreamSink sink;
  };
  struct Stream {
    Ticket ticket;
    StreamSink sink;
  };

  void run();
  bool wait_for_work();
  void take_commands();
  void start(Submission submission);
  void drop(Ticket ticket);
  void step();
  void deliver(const std::vector<TokenEvent>& events);
  void publish();

  std::unique_ptr<Engine> engine_;
  const std::int64_t max_live_;
  std::atomic<std::int64_t> live_{0};  // submitted and not ended

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Submission> submitted_;
  std::vector<Ticket> cancelled_;
  std::vector<std::function<void(Engine&)>> calls_;
  bool stopping_ = false;
  Ticket next_ticket_ = 1;
  EngineLoad load_;  // without `waiting`

  // Of the engine thread alone.
  std::unordered_map<std::int64_t, Stream> streams_;  // by the engine's number
  std::unordered_map<Ticket, std::int64_t> numbers_;  // the engine's number of a ticket
  std::thread thread_;
};

}  // namespace reckoner
