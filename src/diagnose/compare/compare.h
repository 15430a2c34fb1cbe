// compare: how far the predictions of one model are from those of another with the same vocabulary, over a text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/forward.h"

namespace reckoner {

// What is measured at one position: of the next token's distribution, in nats.
struct PositionDivergence {
  double kl = 0;          // sum of p_a * (log p_a - log p_b) over the vocabulary
  bool same_top = false;  // the most probable token is the same
  double logprob_a = 0;   // of the token that follows in the text, where one does
  double logprob_b = 0;
};
// `next` -1: none follows.
PositionDivergence diverge(std::span<const float> logits_a, std::span<const float> logits_b, std::int32_t next);

struct CompareReport {
  std::int64_t windows = 0;
  std::int64_t positions = 0;
  double kl_mean = 0;
  double kl_median = 0;
  double kl_p99 = 0;
  double kl_max = 0;
  double top_agreement = 0;  // share of positions, 0 to 1
  double perplexity_a = 0;
  double perplexity_b = 0;
};

// Runs both models over windows of `window` tokens, each with an empty cache at its start; a rest of one token is left out. `progress` is
// called with the tokens done. Errors: a model's logits are not finite (says where); `interrupted` said so.
struct CompareEvents {
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  std::function<bool()> interrupted = {};
};
Result<CompareReport> compare(StepRunner& a, StepRunner& b, std::span<const std::int32_t> tokens, std::int64_t window,
                              const CompareEvents& events = {});

}  // namespace reckoner
