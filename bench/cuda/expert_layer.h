// The expert layer as a whole, for few tokens.
#pragma once

#include "bench.h"

namespace reckoner {

// Each of the fused ops of a rank's expert layer by itself, then one after the other.
void bench_expert_layer(Bench& bench, std::int64_t tokens, QuantFormat shared);

}  // namespace reckoner
