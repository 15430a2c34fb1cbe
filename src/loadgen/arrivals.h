// When requests are sent.
#pragma once

#include <cstdint>
#include <vector>

namespace reckoner::loadgen {

// Seconds after the start, ascending, the first one at 0. Gaps follow a gamma distribution with mean 1 / rate and shape `burstiness`:
// 1 gives Poisson arrivals, less than 1 bursts, more than 1 a steadier flow. An infinite rate: all at once.
std::vector<double> arrival_times(std::int64_t count, double rate, double burstiness, std::uint64_t seed);

}  // namespace reckoner::loadgen
