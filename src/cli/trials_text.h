// A run of trials as people read it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "diagnose/trials/ledger.h"

namespace reckoner {

// One line: "#12  out of memory    moe=b            in graph capture: trial-12.log:812: CUDA out of memory"
std::string trial_line(const trials::RunRecord& record, const trials::Trial& trial);
// The run's head and a line for each trial; the last `most` of them.
std::string trials_table(const trials::RunRecord& record, std::size_t most);
// What was found, in words; the most important first.
std::string trials_summary(const trials::RunRecord& record);
// Everything about one trial.
std::string trial_page(const trials::RunRecord& record, const trials::Trial& trial);
// What two trials asked for, got and did differently.
std::string trial_difference(const trials::Trial& a, const trials::Trial& b);

}  // namespace reckoner
