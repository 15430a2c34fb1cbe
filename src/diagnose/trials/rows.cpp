#include "diagnose/trials/rows.h"

#include <random>

namespace reckoner::trials {
namespace {

constexpr int kDrawnRows = 40;
constexpr int kPasses = 2;

}  // namespace

ValuePairs pairs_in(const Configuration& configuration) {
  ValuePairs pairs;
  for (std::size_t i = 0; i < configuration.size(); ++i) {
    for (std::size_t j = i + 1; j < configuration.size(); ++j) {
      pairs.insert({static_cast<int>(i), configuration[i], static_cast<int>(j), configuration[j]});
    }
  }
  return pairs;
}

std::optional<Configuration> best_row(const RowChoice& choice) {
  std::mt19937_64 random(choice.seed);
  std::optional<Configuration> best;
  double best_worth = 0;
  for (int i = 0; i < kDrawnRows; ++i) {
    Configuration row;
    for (const std::vector<int>& values : choice.values) row.push_back(values[random() % values.size()]);
    const auto worth = [&] { return choice.is_allowed(row) ? choice.worth(row) : -1.0; };
    double row_worth = worth();
    for (std::size_t step = 0; step < kPasses * row.size(); ++step) {
      const std::size_t factor = step % row.size();
      const int before = row[factor];
      int taken = before;
      for (const int value : choice.values[factor]) {
        row[factor] = value;
        const double new_worth = worth();
        if (new_worth > row_worth) {
          row_worth = new_worth;
          taken = value;
        }
      }
      row[factor] = taken;
    }
    if (row_worth > best_worth) {
      best_worth = row_worth;
      best = row;
    }
  }
  return best;
}

}  // namespace reckoner::trials
