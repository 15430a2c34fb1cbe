#include "diagnose/trials/campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "diagnose/trials/processes.h"
#include "diagnose/trials/run_trial.h"
#include "diagnose/trials/strategy.h"
#include "diagnose/trials/verdicts.h"

namespace reckoner::trials {
namespace {

namespace fs = std::filesystem;

std::string utc_now(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  return std::string(text, std::strftime(text, sizeof text, format, &parts));
}
constexpr const char* kIso = "%Y-%m-%dT%H:%M:%SZ";

// A folder that nobody has used, beside the ledger.
std::string new_folder_name(const fs::path& ledger) {
  const std::string base = fmt::format("{}.logs/{}", ledger.stem().string(), utc_now("%Y%m%d-%H%M%S"));
  std::string name = base;
  for (int i = 2; fs::exists(ledger.parent_path() / name); ++i) name = fmt::format("{}-{}", base, i);
  return name;
}

class Campaign {
 public:
  Campaign(const TrialFile& file, const CampaignOptions& options, const CampaignHooks& hooks, Ledger ledger)
      : file_(file), options_(options), hooks_(hooks), ledger_(std::move(ledger)) {}

  Result<RunRecord> run() {
    TRY(options_.beginning == Beginning::resume ? resume() : begin());
    folder_ = fs::absolute(ledger_.folder_of(record_.run)).lexically_normal();
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) return Error{fmt::format("{}: cannot be made: {}", folder_.string(), error.message()), "name another ledger with --ledger"};
    while (!hooks_.interrupted()) {
      const std::vector<Observation> observations = TRY(observations_of(file_, record_.trials));
      const Plan plan = plan_next(file_, observations, record_.run.seed);
      if (!plan.next || static_cast<std::int64_t>(record_.trials.size()) >= record_.run.max_starts) {
        TRY(write_verdicts());
        TRY(ledger_.set_state(record_.run.id, RunState::ended));
        break;
      }
      TRY(one_trial(*plan.next));
      TRY(write_verdicts());
      hooks_.progress(record_, nullptr, "");
    }
    return ledger_.read_run(record_.run.id);
  }

 private:
  Status begin() {
    Run run{.name = file_.name,
            .goal = file_.goal,
            .file = file_.path,
            .file_text = file_.text,
            .command = file_.target.command,
            .folder = new_folder_name(options_.ledger),
            .started = utc_now(kIso),
            .seed = options_.seed,
            .max_starts = options_.max_starts.value_or(file_.limits.max_starts)};
    for (const auto& [name, value] : describe_machine()) run.environment.push_back({name, value});
    const std::int64_t id = TRY(ledger_.begin_run(run, factors_of(file_), file_.fixed));
    record_ = TRY(ledger_.read_run(id));
    return {};
  }

  Status resume() {
    record_ = TRY(ledger_.read_latest_run());
    if (record_.factors != factors_of(file_)) {
      return Error{fmt::format("{}: its factors are not those of the run that the ledger holds", file_.path),
                   "resume with the trial file that began the run, or begin a new one without --resume"};
    }
    if (options_.max_starts) TRY(ledger_.set_max_starts(record_.run.id, *options_.max_starts));
    if (options_.max_starts) record_.run.max_starts = *options_.max_starts;
    folder_ = fs::absolute(ledger_.folder_of(record_.run)).lexically_normal();
    for (const Trial& trial : record_.trials) {
      if (trial.ended) continue;
      // Whoever ran it was killed; its server may still be there.
      for (const std::string& process : end_marked(mark_of(trial.number))) {
        hooks_.note(fmt::format("{} of trial {} was still running and was ended", process, trial.number));
      }
      TRY(ledger_.forget_trial(record_.run.id, trial.number));
    }
    std::erase_if(record_.trials, [](const Trial& trial) { return !trial.ended; });
    TRY(ledger_.set_state(record_.run.id, RunState::running));
    hooks_.note(fmt::format("going on with run {} after {} trials", record_.run.id, record_.trials.size()));
    return {};
  }

  // By which a trial's processes are known, also to a later program. Folders of runs have a name only once.
  std::string mark_of(std::int64_t number) const { return fmt::format("RECKONER_TRIAL={}#{}", folder_.string(), number); }

  // The file's port, else the last one; another one when somebody has taken it.
  Result<std::int64_t> choose_port(Trial& trial) {
    const std::int64_t preferred = file_.target.port > 0 ? file_.target.port : last_port_;
    const std::int64_t port = free_port(file_.target.host, preferred);
    if (port == 0) return Error{fmt::format("{}: no port is free", file_.target.host), "check target.host of the trial file"};
    if (preferred > 0 && port != preferred) {
      const std::optional<PortHolder> holder = port_holder(preferred);
      trial.leftovers.push_back(fmt::format("before the start port {} was taken by {}: port {} was used", preferred,
                                            holder && holder->process ? text(*holder->process) : "another process", port));
      hooks_.note(trial.leftovers.back());
    }
    last_port_ = port;
    return port;
  }

  Status one_trial(const NextStart& next) {
    Trial trial{.number = static_cast<std::int64_t>(record_.trials.size()) + 1,
                .purpose = next.purpose,
                .settings = settings_of(file_, next.configuration),
                .started = utc_now(kIso)};
    trial.repeat =
        std::count_if(record_.trials.begin(), record_.trials.end(), [&](const Trial& one) { return one.settings == trial.settings; });
    trial.log_file = fmt::format("trial-{}.log", trial.number);
    Placeholders placeholders{.values = next.configuration};
    placeholders.port = TRY(choose_port(trial));
    trial.command = command_for(file_, placeholders);
    TRY(ledger_.begin_trial(record_.run.id, trial));
    const TrialHooks hooks = {.step = [&](std::string_view step) { hooks_.progress(record_, &trial, step); },
                              .interrupted = hooks_.interrupted,
                              .known_as = [&](const Settings& effective) { return next.is_repeat ? 0 : known_as(next, effective); }};
    Result<Trial> done =
        run_trial(file_, {.trial = trial, .placeholders = placeholders, .folder = folder_, .mark = mark_of(trial.number)}, hooks);
    if (!done || !done->ended) TRY(ledger_.forget_trial(record_.run.id, trial.number));
    if (!done) return done.error();
    if (!done->ended) return {};
    if (done->same_as > 0) take_over(*done);
    TRY(ledger_.end_trial(record_.run.id, *done));
    record_.trials.push_back(*done);
    return {};
  }

  std::int64_t known_as(const NextStart& next, const Settings& effective) const {
    const Observation observation{.asked = next.configuration, .effective = effective};
    for (const Trial& trial : record_.trials) {
      if (trial.same_as > 0) continue;
      const Result<std::vector<int>> asked = values_of(file_, trial.settings);
      if (asked && equal_in_effect(file_, {.asked = *asked, .effective = trial.effective}, observation)) return trial.number;
    }
    return 0;
  }

  // It was not probed: it is the other trial over again.
  void take_over(Trial& trial) const {
    const Trial& known = record_.trials[static_cast<std::size_t>(trial.same_as - 1)];
    trial.outcome = known.outcome;
    trial.where = known.where;
    trial.evidence = known.evidence;
  }

  Status write_verdicts() {
    record_.verdicts =
        TRY(conclude({.file = file_, .trials = record_.trials, .seed = record_.run.seed, .max_starts = record_.run.max_starts}));
    return ledger_.write_verdicts(record_.run.id, record_.verdicts);
  }

  const TrialFile& file_;
  const CampaignOptions& options_;
  const CampaignHooks& hooks_;
  Ledger ledger_;
  RunRecord record_;
  fs::path folder_;
  std::int64_t last_port_ = 0;
};

}  // namespace

Result<RunRecord> run_campaign(const TrialFile& file, const CampaignOptions& options, const CampaignHooks& hooks) {
  if (options.beginning == Beginning::resume && !fs::exists(options.ledger)) {
    return Error{options.ledger.string() + ": there is no such ledger to resume", "leave out --resume to begin"};
  }
  Ledger ledger = TRY(Ledger::open(options.ledger, Ledger::Access::write));
  return Campaign(file, options, hooks, std::move(ledger)).run();
}

}  // namespace reckoner::trials
