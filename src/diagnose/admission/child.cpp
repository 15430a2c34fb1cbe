#include "diagnose/admission/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace reckoner::admission {
namespace {

using Clock = std::chrono::steady_clock;

// A file descriptor that is closed with it.
class File {
 public:
  explicit File(int number = -1) : number_(number) {}
  ~File() { close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int operator*() const { return number_; }
  void set(int number) { number_ = number; }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

Error system_error(const char* what) {
  return {fmt::format("kernels cannot be tried in a child process: {}: {}", what, std::strerror(errno)),
          "--admission off serves without trying them"};
}

// A process with the job as its stdin; its stdout comes through a pipe, its stderr is kept.
class Child {
 public:
  ~Child() {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      static_cast<void>(wait());
    }
  }

  Status start(const std::vector<std::string>& command, const std::string& input) {
    in_.set(memfd_create("job", MFD_CLOEXEC));
    err_.set(memfd_create("stderr", MFD_CLOEXEC));
    int ends[2];
    if (*in_ < 0 || *err_ < 0 || pipe2(ends, O_CLOEXEC) != 0) return system_error("memfd_create, pipe2");
    out_.set(ends[0]);
    const File write_end(ends[1]);
    if (pwrite(*in_, input.data(), input.size(), 0) != static_cast<ssize_t>(input.size())) return system_error("pwrite");
    return spawn(command, *write_end);
  }

  // The next line without its newline; nothing at the end, or when `limit` has passed (then timed_out()).
  std::optional<std::string> next_line(std::chrono::milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    for (;;) {
      if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      if (!read_more(deadline)) return std::nullopt;
    }
  }
  bool timed_out() const { return timed_out_; }

  // How it ended, in words; kills it first if it is still at work.
  std::string end() {
    if (timed_out_) kill(process_, SIGKILL);
    const int status = wait();
    if (WIFSIGNALED(status)) return fmt::format("crashed (signal {}: {})", WTERMSIG(status), strsignal(WTERMSIG(status))) + complaint();
    return fmt::format("ended the process with status {}", WEXITSTATUS(status)) + complaint();
  }

 private:
  Status spawn(const std::vector<std::string>& command, int out) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, *in_, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_adddup2(&actions, *err_, 2);
    std::vector<std::string> words = command;
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const int failure = posix_spawn(&process_, pointers.front(), &actions, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failure == 0) return {};
    process_ = -1;
    errno = failure;
    return system_error(pointers.front());
  }

  bool read_more(Clock::time_point deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{.fd = *out_, .events = POLLIN, .revents = 0};
    const int ready = left <= 0 ? 0 : poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) return true;
    timed_out_ = ready == 0;
    if (ready <= 0) return false;
    char bytes[4096];
    const ssize_t count = read(*out_, bytes, sizeof bytes);
    if (count > 0) buffer_.append(bytes, static_cast<std::size_t>(count));
    return count > 0;
  }

  int wait() {
    int status = 0;
    while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {}
    process_ = -1;
    return status;
  }

  // ": " and the first line that it wrote to stderr.
  std::string complaint() const {
    char bytes[512];
    const ssize_t count = pread(*err_, bytes, sizeof bytes, 0);
    const std::string text(bytes, static_cast<std::size_t>(std::max<ssize_t>(0, count)));
    return text.empty() ? "" : ": " + text.substr(0, text.find('\n'));
  }

  File in_, out_, err_;
  pid_t process_ = -1;
  std::string buffer_;
  bool timed_out_ = false;
};

// What one child found out of `items`, before it ended: at least one outcome, unless there is an error.
Result<std::vector<Outcome>> one_child(const Job& job, const ChildOptions& options) {
  Child child;
  TRY(child.start(options.command, to_json(job)));
  std::vector<Outcome> outcomes;
  std::optional<Item> at_work;
  while (const std::optional<std::string> line = child.next_line(options.limit)) {
    const std::variant<Item, Outcome> event = TRY(parse_line(*line));
    if (const Item* const item = std::get_if<Item>(&event)) {
      at_work = *item;
    } else {
      outcomes.push_back(std::get<Outcome>(event));
      at_work.reset();
    }
  }
  const bool hangs = child.timed_out();
  const std::string ended = child.end();
  if (at_work) {
    const std::string reason = hangs ? fmt::format("did not end within {} s", static_cast<double>(options.limit.count()) / 1e3) : ended;
    outcomes.push_back({.item = *at_work, .reason = reason});
  }
  if (outcomes.empty()) {
    const std::string why = hangs ? "it says nothing" : "it " + ended;
    return Error{"kernels cannot be tried in a child process: " + why, "--admission off serves without trying them"};
  }
  return outcomes;
}

}  // namespace

Result<std::vector<Outcome>> admit_in_child(const Job& job, const ChildOptions& options) {
  Job rest = job;
  std::vector<Outcome> all;
  while (!rest.items.empty()) {
    const std::vector<Outcome> some = TRY(one_child(rest, options));
    const std::size_t before = rest.items.size();
    for (const Outcome& outcome : some) std::erase(rest.items, outcome.item);
    if (rest.items.size() == before) return Error{"a child process that tries kernels answers what it was not asked"};
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace reckoner::admission
