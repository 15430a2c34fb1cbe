#include "loadgen/arrivals.h"

#include <cmath>
#include <random>

#include "base/check.h"

namespace reckoner::loadgen {

std::vector<double> arrival_times(std::int64_t count, double rate, double burstiness, std::uint64_t seed) {
  CHECK(count >= 0 && rate > 0 && burstiness > 0);
  std::vector<double> times(static_cast<std::size_t>(count), 0.0);
  if (std::isinf(rate)) return times;
  std::mt19937_64 random(seed);
  std::gamma_distribution<double> gap(burstiness, 1 / (rate * burstiness));
  for (std::size_t i = 1; i < times.size(); ++i) times[i] = times[i - 1] + gap(random);
  return times;
}

}  // namespace reckoner::loadgen
