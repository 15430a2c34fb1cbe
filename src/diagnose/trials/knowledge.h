// Knowledge: what the trials so far say about configurations. Made anew from them each time, so that a resumed run knows the same.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "diagnose/trials/ledger.h"
#include "diagnose/trials/trial_file.h"

namespace reckoner::trials {

// The value of each factor, as an index into its values.
using Configuration = std::vector<int>;
// The same with -1 for "any": an assignment that a configuration may contain.
using Assignment = std::vector<int>;

bool contains(const Configuration& configuration, const Assignment& part);

// A trial that has ended, as the strategy sees it.
struct Observation {
  std::int64_t number = 0;
  Configuration asked;
  Outcome outcome = Outcome::pass;
  bool probed = true;  // false: cut short, because its effective configuration was known
  Settings effective;

  bool failed() const { return outcome != Outcome::pass; }
};

Result<std::vector<Observation>> observations_of(const TrialFile& file, const std::vector<Trial>& trials);

// A set of settings that fails, relative to a configuration that passes.
struct FailingSet {
  Assignment set;
  Configuration from;
  Configuration fails;  // `from` with `set`: the configuration that was started
};

enum class Stability { unknown, passes, fails, flaky };

struct Count {
  std::int64_t passes = 0;
  std::int64_t failures = 0;
  std::vector<std::int64_t> trials;

  Stability status() const {
    if (passes > 0) return failures > 0 ? Stability::flaky : Stability::passes;
    return failures > 0 ? Stability::fails : Stability::unknown;
  }
};

class Knowledge {
 public:
  Knowledge(const TrialFile& file, std::vector<Observation> observations);

  const TrialFile& file() const { return *file_; }
  const std::vector<Observation>& observations() const { return observations_; }
  int factors() const { return static_cast<int>(file_->factors.size()); }
  int values(int factor) const { return static_cast<int>(file_->factors[static_cast<std::size_t>(factor)].values.size()); }

  // The value that stands for `value`: they had equal effective configurations with everything else equal.
  int representative(int factor, int value) const;
  // Every value replaced by the one that stands for it: equal configurations become equal.
  Configuration canonical(const Configuration& configuration) const;
  // The values of a factor that differ in effect, as far as is known.
  std::vector<int> distinct_values(int factor) const;
  bool is_inert(int factor) const { return distinct_values(factor).size() == 1; }

  Count count(const Configuration& configuration) const;
  Stability status(const Configuration& configuration) const { return count(configuration).status(); }
  // By canonical configuration.
  const std::map<Configuration, Count>& counts() const { return counts_; }
  const Configuration& baseline() const { return baseline_; }  // canonical
  // The baseline if it passed, else the passing configuration nearest to it. Nothing: none passed.
  std::optional<Configuration> reference() const;
  // The passing configuration (flaky ones last) with the fewest differences.
  std::optional<Configuration> nearest_passing(const Configuration& to) const;

  bool is_excluded(const Configuration& configuration) const;

 private:
  void find_equal_values();
  void add_counts();

  const TrialFile* file_;
  std::vector<Observation> observations_;
  std::vector<std::vector<int>> representative_;  // [factors][values]
  std::map<Configuration, Count> counts_;
  Configuration baseline_;
};

// Whether both effective configurations were read back for every factor that the trials differ in, and are equal.
bool equal_in_effect(const TrialFile& file, const Observation& a, const Observation& b);

// The factors in which two configurations differ.
std::vector<int> differences(const Configuration& a, const Configuration& b);

}  // namespace reckoner::trials
