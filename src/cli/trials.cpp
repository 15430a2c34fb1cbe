// reckoner trials: which settings of a server make it fail.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>

#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/text_format.h"
#include "cli/trials_text.h"
#include "diagnose/trials/campaign.h"
#include "diagnose/trials/export.h"

namespace reckoner {
namespace {

using trials::Ledger;
using trials::RunRecord;
using trials::Trial;

constexpr const char* kDescription =
    "Starts a server in many configurations, asks it a few things each time, and finds the smallest set of\n"
    "settings that makes it fail, settings without effect, and failures that come and go. Works with any\n"
    "server that speaks OpenAI's API: a TOML file says how to start it (docs/trials.md).";

constexpr const char* kExamples =
    "Examples:\n"
    "  reckoner trials run server.toml\n"
    "  reckoner trials run server.toml --max-starts 60 --resume\n"
    "  reckoner trials status server.ledger\n"
    "  reckoner trials show 3 server.ledger\n"
    "  reckoner trials diff 3 7 server.ledger\n"
    "  reckoner trials export server.ledger --format csv";

struct RunFlags {
  std::string file;
  std::string ledger;
  std::int64_t max_starts = 0;
  std::uint64_t seed = 0;
  bool resume = false;
  bool quiet = false;
};

// The last trials and what the running one does, drawn over itself on a terminal; a line when a trial ends elsewhere.
class TrialsDisplay {
 public:
  explicit TrialsDisplay(Console& console) : console_(console) {}
  ~TrialsDisplay() { clear(); }

  void show(const RunRecord& record, const Trial* current, std::string_view step) {
    if (console_.is_quiet()) return;
    if (!console_.stderr_is_terminal()) return show_lines(record, current);
    constexpr std::size_t kShown = 12;
    std::string block = fmt::format("{}: trial {} of {} at most\n", record.run.name, record.trials.size() + (current == nullptr ? 0 : 1),
                                    record.run.max_starts);
    block += trials_table(record, kShown);
    if (current != nullptr) { block += fmt::format("#{:<3} {:<19}{}\n", current->number, step, current->purpose); }
    redraw(block);
  }
  void clear() { redraw(""); }

 private:
  void show_lines(const RunRecord& record, const Trial* current) {
    if (current == nullptr || current->number == announced_) {
      for (; shown_ < record.trials.size(); ++shown_) console_.plain(trial_line(record, record.trials[shown_]));
      return;
    }
    announced_ = current->number;
    shown_ = record.trials.size();
    console_.plain(fmt::format("#{:<3} {:<19}{}\n", current->number, "starting", current->purpose));
  }
  // Up to the block's first line, and everything from there on anew. Lines must not wrap: they would count twice.
  void redraw(const std::string& block) {
    std::string out = height_ > 0 ? fmt::format("\x1b[{}A\r\x1b[J", height_) : "";
    height_ = std::count(block.begin(), block.end(), '\n');
    out += "\x1b[?7l" + block + "\x1b[?7h";
    if (out.size() > 10) console_.plain(out);
  }

  Console& console_;
  std::int64_t height_ = 0;
  std::size_t shown_ = 0;
  std::int64_t announced_ = 0;
};

std::string default_ledger(const std::string& file) { return std::filesystem::path(file).replace_extension(".ledger").string(); }

int exit_status(const RunRecord& record) {
  if (record.run.state == trials::RunState::running) return kExitInterrupted;
  const bool failed =
      std::any_of(record.trials.begin(), record.trials.end(), [](const Trial& trial) { return trial.outcome != trials::Outcome::pass; });
  return failed ? kExitFailed : 0;
}

Result<int> run_trials(const RunFlags& flags, Console& console) {
  if (flags.quiet) console.be_quiet();
  const Result<trials::TrialFile> file = trials::read_trial_file(flags.file);
  if (!file) {
    console.error(file.error());
    return kExitUsage;
  }
  trials::CampaignOptions options = {.ledger = flags.ledger.empty() ? default_ledger(flags.file) : flags.ledger, .seed = flags.seed};
  if (flags.resume) options.beginning = trials::Beginning::resume;
  if (flags.max_starts > 0) options.max_starts = flags.max_starts;
  const InterruptGuard interrupt(StoppedBy::interrupt_or_terminate);
  TrialsDisplay display(console);
  const trials::CampaignHooks hooks = {
      .progress = [&](const RunRecord& record, const Trial* current, std::string_view step) { display.show(record, current, step); },
      .note =
          [&](const std::string& text) {
            display.clear();
            console.note(text);
          },
      .interrupted = [&] { return interrupt.interrupted(); }};
  const Result<RunRecord> record = trials::run_campaign(*file, options, hooks);
  display.clear();
  if (!record) return record.error();
  console.note("ledger: " + options.ledger.string());
  TRY(console.print((console.stderr_is_terminal() ? trials_table(*record, record->trials.size()) + "\n" : "") + trials_summary(*record)));
  if (record->run.state == trials::RunState::running) console.note("interrupted; `--resume` goes on");
  return exit_status(*record);
}

struct ReadFlags {
  std::string ledger;
  std::int64_t run = 0;
  std::int64_t first = 0;
  std::int64_t second = 0;
  std::string format = "json";
};

Result<RunRecord> read_record(const ReadFlags& flags) {
  const Ledger ledger = TRY(Ledger::open(flags.ledger, Ledger::Access::read));
  return flags.run > 0 ? ledger.read_run(flags.run) : ledger.read_latest_run();
}

Result<Trial> trial_of(const RunRecord& record, std::int64_t number) {
  for (const Trial& trial : record.trials) {
    if (trial.number == number) return trial;
  }
  return Error{fmt::format("there is no trial {}", number), fmt::format("the run has trials 1 to {}", record.trials.size())};
}

Result<int> show_status(const ReadFlags& flags, Console& console) {
  const RunRecord record = TRY(read_record(flags));
  TRY(console.print(trials_table(record, record.trials.size()) + "\n" + trials_summary(record)));
  return 0;
}

Result<int> show_trial(const ReadFlags& flags, Console& console) {
  const RunRecord record = TRY(read_record(flags));
  const Trial trial = TRY(trial_of(record, flags.first));
  TRY(console.print(trial_page(record, trial)));
  return 0;
}

Result<int> show_difference(const ReadFlags& flags, Console& console) {
  const RunRecord record = TRY(read_record(flags));
  const Trial a = TRY(trial_of(record, flags.first));
  const Trial b = TRY(trial_of(record, flags.second));
  TRY(console.print(trial_difference(a, b)));
  return 0;
}

Result<int> export_run(const ReadFlags& flags, Console& console) {
  const RunRecord record = TRY(read_record(flags));
  TRY(console.print(flags.format == "csv" ? trials::export_csv(record) : trials::export_json(record)));
  return 0;
}

void add_run_options(CLI::App& run, RunFlags& flags) {
  run.add_option("FILE", flags.file, "The trial file (docs/trials.md)")->required()->option_text(" ");
  run.add_option("--ledger", flags.ledger, "Where everything is kept (default: FILE with .ledger for .toml)")->option_text("FILE");
  accept_range(run.add_option("--max-starts", flags.max_starts, "Starts at most (default: limits.max_starts of the file, or 40)"), 1,
               100'000);
  run.add_flag("--resume", flags.resume, "Go on with the last run of the ledger");
  run.add_option("--seed", flags.seed, "The same seed and outcomes lead to the same starts (default: 0)")->option_text("N");
  run.add_flag("--quiet", flags.quiet, "Print the summary only");
}

// A command that reads a ledger.
CLI::App* add_reader(CLI::App& app, const char* name, const char* about, ReadFlags& flags,
                     std::initializer_list<std::pair<const char*, std::int64_t*>> numbers) {
  CLI::App* command = app.add_subcommand(name, about);
  for (const auto& [label, number] : numbers) command->add_option(label, *number, "A trial's number")->required()->option_text(" ");
  command->add_option("LEDGER", flags.ledger, "The ledger")->required()->option_text(" ");
  accept_range(command->add_option("--run", flags.run, "Which run of the ledger (default: the last one)"), 1, 1'000'000'000);
  return command;
}

Action add_trials(CLI::App& app) {
  const auto run_flags = std::make_shared<RunFlags>();
  const auto read_flags = std::make_shared<ReadFlags>();
  app.description(kDescription);
  app.footer(kExamples);
  app.require_subcommand(1);
  CLI::App* run = app.add_subcommand("run", "Start configurations until it is known what fails");
  run->description(
      "Starts configurations until it is known what fails. Exit status: 0 all passed, 1 some failed, 2 the file\nis wrong, 130 "
      "interrupted.");
  add_run_options(*run, *run_flags);
  CLI::App* status = add_reader(app, "status", "Print the trials and what was found", *read_flags, {});
  CLI::App* show = add_reader(app, "show", "Print everything about one trial", *read_flags, {{"TRIAL", &read_flags->first}});
  CLI::App* diff = add_reader(app, "diff", "Print what is different about two trials", *read_flags,
                              {{"A", &read_flags->first}, {"B", &read_flags->second}});
  CLI::App* exported = add_reader(app, "export", "Print a run as JSON or CSV", *read_flags, {});
  accept_only(exported->add_option("--format", read_flags->format, "json or csv (default: json)")->option_text("json|csv"),
              {"json", "csv"});
  return [=](Console& console) -> Result<int> {
    if (run->parsed()) return run_trials(*run_flags, console);
    if (status->parsed()) return show_status(*read_flags, console);
    if (show->parsed()) return show_trial(*read_flags, console);
    if (diff->parsed()) return show_difference(*read_flags, console);
    return export_run(*read_flags, console);
  };
}

}  // namespace

const Subcommand kTrials = {.name = "trials",
                            .summary = "Find out which settings of a server make it fail",
                            .example = "reckoner trials run server.toml",
                            .add = add_trials};

}  // namespace reckoner
