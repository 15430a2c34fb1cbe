// What goes into the engine and what comes out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/constraint.h"
#include "engine/sampler.h"
#include "model/forward.h"

namespace reckoner {

struct Request {
  std::vector<std::int32_t> prompt;  // token ids; at least one
  SamplingParams sampling;
  std::int64_t max_tokens = 0;                    // of output; 0: as many as the context holds
  std::vector<std::int32_t> stop_tokens = {};     // any of these ends the output (and is reported as its last token)
  std::vector<std::int32_t> end_tokens = {};      // the same, for the model's own; ignore_eos turns these off
  bool ignore_eos = false;                        // go on after end_tokens
  std::int64_t min_tokens = 0;                    // of output, before which neither stop_tokens nor end_tokens are chosen
  std::optional<std::int64_t> logprobs{};         // report each token's logprob, and this many most probable tokens with it
  std::optional<std::int64_t> prompt_logprobs{};  // report the prompt's logprobs, and this many most probable tokens with each
  std::shared_ptr<TokenConstraint> constraint{};  // what the output must keep to; used by this request alone
};

// stop: the last token is one of those that end an output. complete: the constraint is fulfilled, the last token belongs to the text.
enum class FinishReason : std::uint8_t { none, stop, complete, length, error };

// The logprob of a token of the prompt, given those before it.
struct PromptLogprob {
  double logprob = 0;
  std::vector<TokenLogprob> top = {};  // most probable first
};

// What happened to a request in a step.
struct TokenEvent {
  std::int64_t request = 0;
  std::int32_t token = -1;  // -1: none, the request failed
  double logprob = 0;       // if asked for
  FinishReason finish = FinishReason::none;
  std::string error = {};                           // with FinishReason::error: which step, layer and place went wrong
  std::vector<TokenLogprob> top_logprobs = {};      // most probable first
  std::int64_t cached_tokens = 0;                   // of the prompt: found in the cache, not computed
  std::vector<PromptLogprob> prompt_logprobs = {};  // with the first token, if asked for: of every prompt token but the first
};

// For tests of the guard: the value that `place` computes for the last row of `request` becomes NaN in the step that processes its token
// at `position`.
struct InjectedFault {
  static constexpr std::int64_t kEveryRequest = -2;
  std::int64_t request = -1;  // none
  std::int64_t position = 0;
  std::int32_t place = Guard::kClean;
};

struct EngineLimits {
  std::int64_t max_context = 4096;     // tokens of one sequence
  std::int64_t cache_tokens = 4096;    // tokens of all sequences together, and of what is kept of those that ended
  std::int64_t max_sequences = 8;      // sequences that run at a time
  std::int64_t max_step_tokens = 256;  // rows of a step; longer prompts are read in chunks of at most this
  KvCacheType cache_type = KvCacheType::automatic;
  std::int64_t prompt_logprob_rows = 0;  // prompt rows of a step whose logprobs are reported; 0: no request can ask for them
};

}  // namespace reckoner
