// Configurations of many values at once: every two values come together in few rows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "diagnose/trials/knowledge.h"

namespace reckoner::trials {

// Two values of two factors, the lower factor first.
struct ValuePair {
  int factor_a, value_a;
  int factor_b, value_b;

  auto operator<=>(const ValuePair&) const = default;
};
using ValuePairs = std::set<ValuePair>;

ValuePairs pairs_in(const Configuration& configuration);

struct RowChoice {
  std::vector<std::vector<int>> values;  // [factors]: those to choose from
  std::function<bool(const Configuration&)> is_allowed;
  std::function<double(const Configuration&)> worth;  // the best of many drawn rows is taken; 0: not worth a start
  std::uint64_t seed = 0;
};

// The row with the greatest worth among many that are drawn and improved value by value. Nothing: all are worth 0.
std::optional<Configuration> best_row(const RowChoice& choice);

}  // namespace reckoner::trials
