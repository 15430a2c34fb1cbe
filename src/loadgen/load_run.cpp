#include "loadgen/load_run.h"

#include <sys/resource.h>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <memory>

#include "loadgen/answer_reader.h"

namespace reckoner::loadgen {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr auto kTick = std::chrono::milliseconds(100);

// A connection takes a file descriptor, and shells often allow only 1024.
void allow_many_connections() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

class LoadRun {
 public:
  LoadRun(HttpClient& client, Api api, const std::vector<PlannedRequest>& plan, std::int64_t max_concurrency, const LoadHooks& hooks)
      : client_(client),
        path_(api == Api::chat ? "/v1/chat/completions" : "/v1/completions"),
        plan_(plan),
        max_running_(max_concurrency > 0 ? max_concurrency : static_cast<std::int64_t>(plan.size())),
        hooks_(hooks),
        arrivals_(client.io()),
        ticks_(client.io()) {
    result_.timelines.resize(plan.size());
  }

  LoadResult run() {
    const std::int64_t before = client_.connections_opened();
    client_.io().restart();
    start_ = Clock::now();
    await_arrival();
    tick();
    client_.io().run();
    result_.connections = client_.connections_opened() - before;
    return std::move(result_);
  }

 private:
  double now_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  std::int64_t total() const { return static_cast<std::int64_t>(plan_.size()); }
  LoadProgress progress() const { return {.ended = ended_, .failed = failed_, .running = running_, .total = total()}; }

  // Admits all that are due, then waits for the next one.
  void await_arrival() {
    while (next_ < plan_.size() && plan_[next_].at_s <= now_s() && !result_.interrupted) {
      Timeline& timeline = result_.timelines[next_];
      timeline.arrival_s = plan_[next_].at_s;
      if (running_ < max_running_) {
        send(next_, timeline.arrival_s);
      } else {
        held_back_.push_back(next_);
      }
      ++next_;
    }
    if (next_ == plan_.size() || result_.interrupted) return;
    arrivals_.expires_at(start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(plan_[next_].at_s)));
    arrivals_.async_wait([this](boost::system::error_code error) {
      if (!error) await_arrival();
    });
  }

  // `due_s`: what its times are measured from.
  void send(std::size_t index, double due_s) {
    Timeline& timeline = result_.timelines[index];
    timeline.start_s = due_s;
    timeline.started = true;
    ++running_;
    const auto reader = std::make_shared<AnswerReader>(timeline);
    HttpEvents events;
    events.head = [reader](int status, std::string_view type) { reader->head(status, type); };
    events.body = [this, reader](std::string_view bytes) { return reader->body(bytes, now_s()); };
    events.end = [this, reader, &timeline](ExchangeEnd end, const Failure& why) {
      end == ExchangeEnd::failed ? reader->broken_off(why, now_s()) : reader->end(now_s());
      on_end(timeline);
    };
    client_.start("POST", path_, plan_[index].body, events);
  }

  void on_end(const Timeline& timeline) {
    --running_;
    ++ended_;
    if (timeline.failure) ++failed_;
    if (ended_ == total() || result_.interrupted) ticks_.cancel();
    if (held_back_.empty() || result_.interrupted) return;
    const std::size_t index = held_back_.front();
    held_back_.pop_front();
    // Not from here: a request that fails at once would end up here again, and so on.
    asio::post(client_.io(), [this, index, due_s = now_s()] {
      if (!result_.interrupted) send(index, due_s);
    });
  }

  void tick() {
    hooks_.progress(progress());
    if (hooks_.interrupted()) {
      result_.interrupted = true;
      arrivals_.cancel();
      client_.interrupt();
      return;
    }
    ticks_.expires_after(kTick);
    ticks_.async_wait([this](boost::system::error_code error) {
      if (!error && ended_ < total()) tick();
    });
  }

  HttpClient& client_;
  std::string path_;
  const std::vector<PlannedRequest>& plan_;
  std::int64_t max_running_;
  const LoadHooks& hooks_;
  asio::steady_timer arrivals_;
  asio::steady_timer ticks_;
  Clock::time_point start_;
  LoadResult result_;
  std::deque<std::size_t> held_back_;
  std::size_t next_ = 0;
  std::int64_t running_ = 0;
  std::int64_t ended_ = 0;
  std::int64_t failed_ = 0;
};

}  // namespace

LoadResult run_load(HttpClient& client, Api api, const std::vector<PlannedRequest>& plan, std::int64_t max_concurrency,
                    const LoadHooks& hooks) {
  allow_many_connections();
  return LoadRun(client, api, plan, max_concurrency, hooks).run();
}

}  // namespace reckoner::loadgen
