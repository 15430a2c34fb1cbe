// A step: what the engine asks of a model at a time, and what comes back.
#pragma once

#include <string>

#include "model/kv_layout.h"
#include "ops/kernel.h"

namespace reckoner {

// One step's work; immutable while it runs. Prefill and decode look alike: rows of tokens, each somewhere in its sequence.
struct Batch {
  Tensor tokens;       // [tokens] i32: ids
  TokenPlaces places;  // position and page table of each
  Tensor sample_rows;  // [samples] i32: rows of `tokens` whose logits are wanted
};

struct StepLimits {
  std::int64_t max_tokens = 256;    // rows of a step
  std::int64_t max_samples = 8;     // rows with logits
  std::int64_t max_context = 4096;  // tokens of a sequence
  KvCacheType cache_type = KvCacheType::automatic;
};

struct StepOutput {
  Tensor logits;           // [samples, vocab] f32, valid until the next step
  Tensor first_bad;        // [tokens] i32: Guard::kClean, or the place whose output was first not finite
  Tensor rms;              // [places, tokens] f32: root mean square of the residual stream behind each GuardPlace
  std::string error = {};  // the device failed: nothing above holds, nor will it in later steps
};

}  // namespace reckoner
