#include "diagnose/trials/knowledge.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace reckoner::trials {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

bool contains(const Configuration& configuration, const Assignment& part) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] >= 0 && part[i] != configuration[i]) return false;
  }
  return true;
}

std::vector<int> differences(const Configuration& a, const Configuration& b) {
  std::vector<int> factors;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) factors.push_back(static_cast<int>(i));
  }
  return factors;
}

Result<std::vector<Observation>> observations_of(const TrialFile& file, const std::vector<Trial>& trials) {
  std::vector<Observation> observations;
  for (const Trial& trial : trials) {
    if (!trial.ended) continue;
    Observation observation{.number = trial.number, .outcome = trial.outcome, .probed = trial.same_as == 0, .effective = trial.effective};
    observation.asked = TRY(values_of(file, trial.settings));
    observations.push_back(std::move(observation));
  }
  return observations;
}

bool equal_in_effect(const TrialFile& file, const Observation& a, const Observation& b) {
  if (a.effective.empty() || a.effective != b.effective) return false;
  for (const int factor : differences(a.asked, b.asked)) {
    if (!find(a.effective, file.factors[at(factor)].factor.effective_key)) return false;
  }
  return true;
}

Knowledge::Knowledge(const TrialFile& file, std::vector<Observation> observations) : file_(&file), observations_(std::move(observations)) {
  find_equal_values();
  Configuration baseline;
  for (const FactorSpec& spec : file.factors) baseline.push_back(spec.baseline);
  baseline_ = canonical(baseline);
  add_counts();
}

// Two values are one when trials that differ in nothing else had equal effective configurations, and no other such pair differed.
void Knowledge::find_equal_values() {
  for (int factor = 0; factor < factors(); ++factor) {
    std::vector<int> own(at(values(factor)));
    std::iota(own.begin(), own.end(), 0);
    representative_.push_back(std::move(own));
  }
  enum class Seen { nothing, equal, different };
  std::map<std::array<int, 3>, Seen> seen;  // factor, lower value, higher value
  for (std::size_t i = 0; i < observations_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Observation& a = observations_[i];
      const Observation& b = observations_[j];
      if (a.effective.empty() || b.effective.empty()) continue;
      const std::vector<int> different = differences(a.asked, b.asked);
      if (different.size() != 1) continue;
      const int factor = different.front();
      if (!find(a.effective, file_->factors[at(factor)].factor.effective_key)) continue;
      const auto [low, high] = std::minmax(a.asked[at(factor)], b.asked[at(factor)]);
      Seen& one = seen[{factor, low, high}];
      if (!equal_in_effect(*file_, a, b)) one = Seen::different;
      if (one == Seen::nothing) one = Seen::equal;
    }
  }
  for (const auto& [key, what] : seen) {
    if (what != Seen::equal) continue;
    const auto [factor, low, high] = key;
    std::vector<int>& all = representative_[at(factor)];
    // The baseline's value stands for its equals, else the first one.
    const int baseline = file_->factors[at(factor)].baseline;
    int first = std::min(all[at(low)], all[at(high)]);
    if (all[at(baseline)] == all[at(low)] || all[at(baseline)] == all[at(high)]) first = all[at(baseline)];
    if (baseline == low || baseline == high) first = baseline;
    const int old_low = all[at(low)];
    const int old_high = all[at(high)];
    for (int& value : all) {
      if (value == old_low || value == old_high) value = first;
    }
  }
}

void Knowledge::add_counts() {
  for (const Observation& observation : observations_) {
    if (!observation.probed) continue;
    Count& count = counts_[canonical(observation.asked)];
    ++(observation.failed() ? count.failures : count.passes);
    count.trials.push_back(observation.number);
  }
}

int Knowledge::representative(int factor, int value) const { return representative_[at(factor)][at(value)]; }

Configuration Knowledge::canonical(const Configuration& configuration) const {
  Configuration result = configuration;
  for (int factor = 0; factor < factors(); ++factor) result[at(factor)] = representative(factor, configuration[at(factor)]);
  return result;
}

std::vector<int> Knowledge::distinct_values(int factor) const {
  std::vector<int> distinct;
  for (int value = 0; value < values(factor); ++value) {
    if (representative(factor, value) == value) distinct.push_back(value);
  }
  return distinct;
}

Count Knowledge::count(const Configuration& configuration) const {
  const auto found = counts_.find(canonical(configuration));
  return found == counts_.end() ? Count{} : found->second;
}

std::optional<Configuration> Knowledge::nearest_passing(const Configuration& to) const {
  std::optional<Configuration> nearest;
  std::pair<int, std::size_t> least{2, 0};
  for (const auto& [configuration, count] : counts_) {
    if (count.passes == 0) continue;
    const std::pair<int, std::size_t> distance{count.failures > 0 ? 1 : 0, differences(configuration, canonical(to)).size()};
    if (distance >= least) continue;
    least = distance;
    nearest = configuration;
  }
  return nearest;
}

std::optional<Configuration> Knowledge::reference() const {
  if (count(baseline_).passes > 0) return baseline_;
  return nearest_passing(baseline_);
}

bool Knowledge::is_excluded(const Configuration& configuration) const {
  return std::any_of(file_->excluded.begin(), file_->excluded.end(), [&](const Assignment& part) { return contains(configuration, part); });
}

}  // namespace reckoner::trials
