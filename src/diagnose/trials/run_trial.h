// One trial from the start of the server to its end.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "diagnose/trials/ledger.h"
#include "diagnose/trials/server_process.h"
#include "diagnose/trials/trial_file.h"

namespace reckoner::trials {

struct TrialHooks {
  // A word on what is being done: "starting", "probe short", "stopping".
  std::function<void(std::string_view step)> step = [](std::string_view) {};
  // Whether to give up: the trial is then stopped, and not counted.
  std::function<bool()> interrupted = [] { return false; };
  // The number of an ended trial with this effective configuration, 0 if there is none: then it is not probed again.
  std::function<std::int64_t(const Settings& effective)> known_as = [](const Settings&) { return std::int64_t{0}; };
};

struct TrialRequest {
  Trial trial;  // number, repeat, purpose, settings, command, log_file are set
  Placeholders placeholders;
  std::filesystem::path folder;  // of the run
  std::string mark;
};

// Fills in the rest of the trial; `ended` is false when it was interrupted. Error: the program is not there, the log cannot be written.
Result<Trial> run_trial(const TrialFile& file, const TrialRequest& request, const TrialHooks& hooks);

}  // namespace reckoner::trials
