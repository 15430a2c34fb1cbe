// BadStep: a step some of whose values are not finite, shown to whoever wants to know why, before anything of it is given back.
#pragma once

#include <cstdint>
#include <functional>

#include "model/forward.h"

namespace reckoner {

struct BadStep {
  std::int64_t step = 0;
  std::int64_t request = 0;  // the first whose rows are bad
  std::int64_t row = 0;      // of the batch
  std::int64_t position = 0;
  std::int32_t place = Guard::kClean;  // kClean: the residual stream is fine and the logits are not
  // While the sink runs, running the batch again gives the same: the cache rows before it are as they were. The runner's fault is set.
  const Batch& batch;
  StepRunner& runner;
};

// Called on the engine's thread; the step's results are already taken.
using BadStepSink = std::function<void(const BadStep&)>;

}  // namespace reckoner
