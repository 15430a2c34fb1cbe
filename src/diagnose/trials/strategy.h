// What to start next, and what the trials so far amount to. A function of the trial file and the trials, nothing else: the same trials
// lead to the same next one, so that an interrupted run goes on as if it had not been interrupted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/trials/knowledge.h"

namespace reckoner::trials {

struct NextStart {
  Configuration configuration;
  std::string purpose;
  // A configuration that was started before, to see whether its outcome is stable: it is probed although it is known.
  bool is_repeat = false;
};

// A failure that no set found so far explains.
struct OpenFailure {
  Configuration configuration;
};

struct Plan {
  std::optional<NextStart> next;  // nothing: there is nothing left to find out
  std::vector<FailingSet> sets;   // failing sets that are known, confirmed or not
  std::vector<OpenFailure> open;  // failures that are not isolated yet
};

// In this order: the listed configurations; the baseline; what isolates a failure that was seen; each value alone; rows of many values
// until every two that can be started together have been; repeats until a flake of the rate that the file names would have shown.
// Without a configuration that passes, one is looked for with rows and single values in turn.
Plan plan_next(const TrialFile& file, const std::vector<Observation>& observations, std::uint64_t seed);

}  // namespace reckoner::trials
