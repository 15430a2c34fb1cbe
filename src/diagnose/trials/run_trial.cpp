#include "diagnose/trials/run_trial.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "diagnose/trials/answers.h"
#include "diagnose/trials/log_rules.h"
#include "diagnose/trials/probes.h"

namespace reckoner::trials {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kReadyPoll{100};
constexpr double kReadyRequestS = 5;
constexpr milliseconds kLastMoments{2000};  // of a process whose connection was lost

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

enum class Readied { ready, ended, not_in_time, interrupted };

class TrialRun {
 public:
  TrialRun(const TrialFile& file, const TrialRequest& request, const TrialHooks& hooks)
      : file_(file),
        request_(request),
        hooks_(hooks),
        trial_(request.trial),
        log_(request.folder / request.trial.log_file),
        client_(file.target, request.placeholders.port, [this] { return hooks_.interrupted() || !process_->is_running(); }) {}

  Result<Trial> run() {
    hooks_.step("starting");
    process_ = TRY(ServerProcess::start({.command = trial_.command,
                                         .environment = environment_for(file_, request_.placeholders),
                                         .directory = file_.target.directory,
                                         .log = log_,
                                         .mark = request_.mark}));
    const Readied readied = wait_until_ready();
    trial_.start_s = seconds_since(start_);
    if (readied == Readied::ready) {
      read_endpoints();
      const LogFindings early = TRY(scan_log(file_, log_, trial_.log_file));
      trial_.same_as = hooks_.known_as(joined(early.effective, trial_.effective));
      if (trial_.same_as == 0) run_probes();
    }
    const bool interrupted = hooks_.interrupted();
    const bool was_running = is_still_running();
    hooks_.step("stopping");
    const StopReport stop = process_->stop(milliseconds(static_cast<std::int64_t>(file_.limits.stop_s * 1e3)), request_.placeholders.port);
    trial_.ending = text(stop.ending);
    trial_.leftovers.insert(trial_.leftovers.end(), stop.leftovers.begin(), stop.leftovers.end());
    trial_.peak_memory_bytes = process_->peak_memory_bytes();
    trial_.peak_gpu_bytes = process_->peak_gpu_bytes();
    trial_.total_s = seconds_since(start_);
    const LogFindings log = TRY(scan_log(file_, log_, trial_.log_file));
    trial_.patterns = log.patterns;
    trial_.effective = joined(log.effective, trial_.effective);
    classify(readied, was_running, stop.ending, log);
    trial_.ended = !interrupted;
    return std::move(trial_);
  }

 private:
  Readied wait_until_ready() {
    std::int64_t from = 0;
    while (seconds_since(start_) < file_.limits.start_s) {
      if (hooks_.interrupted()) return Readied::interrupted;
      if (!process_->is_running()) return Readied::ended;
      if (file_.ready.line) {
        if (has_line(log_, *file_.ready.line, from)) return Readied::ready;
      } else if (const Reply reply = client_.get(file_.ready.path, kReadyRequestS); reply.complete && reply.status == 200) {
        return Readied::ready;
      }
      std::this_thread::sleep_for(kReadyPoll);
    }
    return Readied::not_in_time;
  }

  void read_endpoints() {
    hooks_.step("reading back");
    for (const EffectiveSpec& spec : file_.effective) {
      if (spec.endpoint.empty()) continue;
      const Reply reply = client_.get(spec.endpoint, file_.limits.request_s);
      const std::string value = reply.complete && reply.status == 200 ? field_text(reply.body, spec.field) : "";
      if (!value.empty()) trial_.effective.push_back({.name = spec.key, .value = shown_text(value, 400)});
    }
  }

  // In the order of the trial file.
  Settings joined(const Settings& from_log, const Settings& from_endpoints) const {
    Settings all;
    for (const EffectiveSpec& spec : file_.effective) {
      const Settings& source = spec.line ? from_log : from_endpoints;
      const std::optional<std::string> value = find(source, spec.key);
      if (value && !find(all, spec.key)) all.push_back({.name = spec.key, .value = *value});
    }
    return all;
  }

  // Goes on after a failed probe as long as the server answers: what else fails is worth knowing.
  void run_probes() {
    std::string fingerprints;
    for (const ProbeSpec& spec : file_.probes) {
      if (hooks_.interrupted()) return;
      hooks_.step("probe " + spec.name);
      trial_.probes.push_back(run_probe(client_, spec, file_.limits));
      fingerprints += trial_.probes.back().fingerprint;
      const Outcome outcome = trial_.probes.back().outcome;
      if (outcome == Outcome::hang || outcome == Outcome::crash || !process_->is_running()) break;
    }
    if (!fingerprints.empty()) trial_.fingerprint = fingerprint_of(fingerprints);
  }

  // A process that dies closes its connections first and is gone a moment later, when its memory is written to disk even a long one.
  bool is_still_running() {
    const bool lost_connection = !trial_.probes.empty() && trial_.probes.back().outcome == Outcome::crash;
    const Clock::time_point deadline = Clock::now() + (lost_connection ? kLastMoments : Clock::duration::zero());
    while (process_->is_running() && Clock::now() < deadline && !hooks_.interrupted()) std::this_thread::sleep_for(kReadyPoll);
    return process_->is_running();
  }

  const ProbeResult* failed_probe() const {
    const ProbeResult* slow = nullptr;
    for (const ProbeResult& probe : trial_.probes) {
      if (probe.outcome == Outcome::slow && slow == nullptr) slow = &probe;
      if (probe.outcome != Outcome::pass && probe.outcome != Outcome::slow) return &probe;
    }
    return slow;
  }

  void set(Outcome outcome, std::string where, const Evidence& evidence) {
    trial_.outcome = outcome;
    trial_.where = std::move(where);
    trial_.evidence = evidence;
  }
  Evidence last_line(const LogFindings& log, std::string_view fallback) const {
    if (log.last_line.line > 0) return log.last_line;
    return {.text = fmt::format("{}; it printed nothing", fallback), .file = trial_.log_file};
  }

  void classify(Readied readied, bool was_running, const Ending& ending, const LogFindings& log) {
    if (trial_.same_as != 0) return;  // the caller knows that trial
    const ProbeResult* probe = failed_probe();
    if (readied == Readied::ready && was_running) {
      if (probe != nullptr) classify_probe(*probe, log);
      return;
    }
    const std::string where = readied == Readied::ready ? (probe != nullptr ? "probe " + probe->name : "after the probes") : log.phase;
    if (log.failure && (readied != Readied::not_in_time || log.failure->outcome != Outcome::no_start)) {
      return set(log.failure->outcome, readied == Readied::ready ? where : log.failure->phase, log.failure->evidence);
    }
    if (readied == Readied::not_in_time) {
      return set(Outcome::hang, log.phase, last_line(log, fmt::format("not ready after {:.0f} s", file_.limits.start_s)));
    }
    if (ending.signal != 0) return set(Outcome::crash, where, last_line(log, text(ending)));
    if (readied == Readied::ready) return set(Outcome::crash, where, last_line(log, "it ended " + text(ending)));
    set(Outcome::no_start, where, last_line(log, "it ended " + text(ending)));
  }

  // The answer shows that something is wrong; the log may say what.
  void classify_probe(const ProbeResult& probe, const LogFindings& log) {
    const std::string where = "probe " + probe.name;
    const bool log_says_more = log.failure && log.failure->outcome != Outcome::no_start && probe.outcome != Outcome::slow;
    if (log_says_more) return set(log.failure->outcome, where, log.failure->evidence);
    std::string said = probe.detail;
    if (!probe.answer.empty()) said += fmt::format(": \"{}\"", probe.answer);
    set(probe.outcome == Outcome::crash ? Outcome::refused : probe.outcome, where, {.text = said, .file = trial_.log_file});
  }

  const TrialFile& file_;
  const TrialRequest& request_;
  const TrialHooks& hooks_;
  Trial trial_;
  std::filesystem::path log_;
  std::unique_ptr<ServerProcess> process_;
  ProbeClient client_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

Result<Trial> run_trial(const TrialFile& file, const TrialRequest& request, const TrialHooks& hooks) {
  return TrialRun(file, request, hooks).run();
}

}  // namespace reckoner::trials
