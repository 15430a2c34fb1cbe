// What the trials of a run amount to, as sentences with the trials that show them.
#pragma once

#include <vector>

#include "diagnose/trials/ledger.h"
#include "diagnose/trials/strategy.h"
#include "diagnose/trials/trial_file.h"

namespace reckoner::trials {

struct VerdictInput {
  const TrialFile& file;
  const std::vector<Trial>& trials;
  std::uint64_t seed = 0;
  std::int64_t max_starts = 0;
};

// The most important first. Error: a trial with settings that the file does not have.
Result<std::vector<Verdict>> conclude(const VerdictInput& input);

}  // namespace reckoner::trials
