#include "server/engine_thread.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

namespace reckoner {

EngineThread::EngineThread(std::unique_ptr<Engine> engine, std::int64_t max_queued)
    : engine_(std::move(engine)), max_live_(engine_->limits().max_sequences + max_queued), thread_([this] { run(); }) {}

EngineThread::~EngineThread() { stop(); }

void EngineThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  streams_.clear();
  submitted_.clear();
}

std::optional<std::vector<Ticket>> EngineThread::submit(std::vector<std::pair<Request, StreamSink>> requests) {
  std::vector<Ticket> tickets;
  {
    const std::lock_guard lock(mutex_);
    const auto count = static_cast<std::int64_t>(requests.size());
    if (stopping_ || live_ + count > max_live_) return std::nullopt;
    live_ += count;
    for (auto& [request, sink] : requests) {
      tickets.push_back(next_ticket_++);
      submitted_.push_back({.ticket = tickets.back(), .request = std::move(request), .sink = std::move(sink)});
    }
  }
  wake_.notify_one();
  return tickets;
}

void EngineThread::cancel(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(ticket);
  }
  wake_.notify_one();
}

void EngineThread::flush_cache(std::function<void(std::int64_t)> done) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back([done = std::move(done)](Engine& engine) {
      const std::int64_t before = engine.stats().free_pages;
      engine.flush();
      done(engine.stats().free_pages - before);
    });
  }
  wake_.notify_one();
}

EngineLoad EngineThread::load() const {
  const std::lock_guard lock(mutex_);
  EngineLoad load = load_;
  const std::int64_t live = live_;
  load.running = std::min(live, load.engine.running);
  load.waiting = live - load.running;
  return load;
}

void EngineThread::run() {
  while (wait_for_work()) {
    take_commands();
    if (!engine_->idle()) step();
  }
}

bool EngineThread::wait_for_work() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return stopping_ || !submitted_.empty() || !cancelled_.empty() || !calls_.empty() || !engine_->idle(); });
  return !stopping_;
}

void EngineThread::take_commands() {
  std::deque<Submission> submitted;
  std::vector<Ticket> cancelled;
  std::vector<std::function<void(Engine&)>> calls;
  {
    const std::lock_guard lock(mutex_);
    submitted.swap(submitted_);
    cancelled.swap(cancelled_);
    calls.swap(calls_);
  }
  for (Submission& submission : submitted) start(std::move(submission));
  for (const Ticket ticket : cancelled) drop(ticket);
  for (const auto& one : calls) one(*engine_);
  publish();
}

void EngineThread::start(Submission submission) {
  const Result<std::int64_t> number = engine_->submit(std::move(submission.request));
  if (!number) {
    --live_;
    return submission.sink({.events = {}, .refused = number.error()});
  }
  numbers_.emplace(submission.ticket, *number);
  streams_.emplace(*number, Stream{.ticket = submission.ticket, .sink = std::move(submission.sink)});
}

void EngineThread::drop(Ticket ticket) {
  const auto found = numbers_.find(ticket);
  if (found == numbers_.end()) return;  // it has ended
  engine_->cancel(found->second);
  streams_.erase(found->second);
  numbers_.erase(found);
  --live_;
}

void EngineThread::step() {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<TokenEvent> events = engine_->step();
  {
    const std::lock_guard lock(mutex_);
    load_.last_step_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  publish();
  deliver(events);
}

void EngineThread::deliver(const std::vector<TokenEvent>& events) {
  std::map<std::int64_t, std::vector<TokenEvent>> by_request;
  for (const TokenEvent& event : events) by_request[event.request].push_back(event);
  for (auto& [number, own] : by_request) {
    const auto stream = streams_.find(number);
    if (stream == streams_.end()) continue;
    const bool ended = own.back().finish != FinishReason::none;
    if (ended) --live_;  // before the client can see the end and ask for more
    stream->second.sink({.events = std::move(own), .refused = {}});
    if (!ended) continue;
    numbers_.erase(stream->second.ticket);
    streams_.erase(stream);
  }
}

void EngineThread::publish() {
  const EngineStats stats = engine_->stats();
  const std::lock_guard lock(mutex_);
  load_.engine = stats;
}

}  // namespace reckoner
