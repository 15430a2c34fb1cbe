// A run: trials one after the other, until there is nothing left to find out, all of it in the ledger.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "diagnose/trials/ledger.h"
#include "diagnose/trials/trial_file.h"

namespace reckoner::trials {

enum class Beginning { anew, resume };

struct CampaignOptions {
  std::filesystem::path ledger;
  Beginning beginning = Beginning::anew;
  std::optional<std::int64_t> max_starts;  // else the file's
  std::uint64_t seed = 0;
};

struct CampaignHooks {
  // After everything that changed: the run so far; `current` is the trial that is running, with the word on what it does.
  std::function<void(const RunRecord& record, const Trial* current, std::string_view step)> progress = [](const RunRecord&, const Trial*,
                                                                                                          std::string_view) {};
  std::function<void(const std::string& text)> note = [](const std::string&) {};
  std::function<bool()> interrupted = [] { return false; };
};

// The run as the ledger holds it then; its state is `running` if it was interrupted. Errors: the program of the target cannot be started,
// the ledger cannot be written, there is nothing to resume.
Result<RunRecord> run_campaign(const TrialFile& file, const CampaignOptions& options, const CampaignHooks& hooks);

}  // namespace reckoner::trials
