// Sampling: from logits to the next token.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/threads.h"

namespace reckoner {

// Names and meanings are the field's (OpenAI, vLLM, transformers).
struct SamplingParams {
  double temperature = 1;                          // 0: greedy
  std::int64_t top_k = 0;                          // keep the k most probable; 0: off
  double top_p = 1;                                // keep the most probable until their probabilities reach this; (0, 1]
  double min_p = 0;                                // keep those at least this times as probable as the most probable; [0, 1]
  double repetition_penalty = 1;                   // > 1 divides positive and multiplies negative logits of tokens in prompt and output
  double presence_penalty = 0;                     // subtracted from logits of tokens in the output; [-2, 2]
  double frequency_penalty = 0;                    // the same, times how often they occur; [-2, 2]
  std::map<std::int32_t, double> logit_bias = {};  // added to logits
  std::uint64_t seed = 0;                          // the same seed and logits give the same tokens
};

// An error names the first value out of its range, and the range. `vocab`: logit_bias ids must be below.
Status check(const SamplingParams& params, std::int64_t vocab);

struct TokenLogprob {
  std::int32_t token = 0;
  double logprob = 0;  // natural logarithm of its probability before penalties, bias, masks, temperature and cuts
};

// Tokens of a sequence so far, for the penalties.
struct TokenCounts {
  std::unordered_map<std::int32_t, std::int64_t> prompt;
  std::unordered_map<std::int32_t, std::int64_t> output;
};

// What may not be chosen whatever its logit is.
struct SamplingMask {
  std::span<const std::uint32_t> allowed = {};   // bit i % 32 of word i / 32: token i may be chosen; empty: every token
  std::span<const std::int32_t> forbidden = {};  // sorted; unless nothing else is allowed
};

// Keeps scratch buffers, so one Sampler serves one thread. Logits are [vocab], all finite.
class Sampler {
 public:
  // The next token; nothing where the mask allows none. `draw` numbers the random draws of a sequence: 0, 1, 2, ... `helpers` are threads
  // that have nothing else to do: the token is the same with them.
  std::optional<std::int32_t> sample(std::span<const float> logits, const SamplingParams& params, const TokenCounts& counts,
                                     std::uint64_t draw, const SamplingMask& mask = {}, ThreadPool* helpers = nullptr);

 private:
  // Sixty-four tokens: most are passed over by what is known of all of them.
  struct Block {
    float sum = 0, largest = 0;  // of their weights
  };
  struct Candidate {
    float logit = 0, weight = 0;
    std::int32_t token = 0;
    bool operator<(const Candidate& other) const {  // comes before: weights that are rounded may be equal where logits are not
      return logit > other.logit || (logit == other.logit && token < other.token);
    }
  };

  std::span<const float> adjust(std::span<const float> logits, const SamplingParams& params, const TokenCounts& counts,
                                const SamplingMask& mask);
  void weigh(std::span<const float> logits, float largest, const SamplingParams& params, ThreadPool* helpers);
  void weigh_block(std::span<const float> logits, float largest, const SamplingParams& params, std::size_t index);
  std::int32_t draw_of_all(double uniform) const;
  void collect(std::span<const float> logits, const SamplingParams& params);
  void cut(const SamplingParams& params);

  std::vector<float> adjusted_;  // [vocab] logits after penalties, bias and masks, where there are any
  std::vector<float> weights_;   // [vocab, up to a whole block] probability relative to the most probable token's
  std::vector<Block> blocks_;
  std::vector<Candidate> candidates_;
};

bool all_finite(std::span<const float> logits);
double log_sum_exp(std::span<const float> logits);
inline double logprob_of(std::span<const float> logits, double log_sum, std::int32_t token) {
  return logits[static_cast<std::size_t>(token)] - log_sum;
}
// The `count` most probable tokens, most probable first, lower ids first among equals.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double log_sum, std::int64_t count);

}  // namespace reckoner
