// GenerationOptions: the fields about sampling, length and streaming that the text endpoints share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "formats/generation_config.h"
#include "server/requests/fields.h"

namespace reckoner {

struct GenerationOptions {
  SamplingParams sampling;
  bool has_seed = false;        // otherwise one is drawn
  std::int64_t max_tokens = 0;  // 0: what the context holds
  std::int64_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_token_ids;
  std::int64_t n = 1;
  std::optional<std::int64_t> logprobs;  // wanted, with this many alternatives a token
  bool prompt_logprobs = false;          // the prompt's too
  bool stream = false;
  bool include_usage = false;     // a chunk with the usage at the end of a stream
  bool continuous_usage = false;  // usage in every chunk
  bool skip_special_tokens = true;
};

// What a request is checked against.
struct RequestLimits {
  std::int64_t vocab = 0;
  std::int64_t max_context = 0;
  GenerationConfig defaults = {};  // for sampling fields that a request leaves out
};

inline constexpr std::int64_t kMaxChoices = 128;
inline constexpr std::int64_t kMaxTopLogprobs = 20;

// The names of the fields that read_options() and read_stream_options() read.
std::span<const KnownField> option_fields();

// max_tokens, logprobs and top_logprobs mean different things in different endpoints and are read there.
Result<GenerationOptions> read_options(const JsonNode& root, const RequestLimits& limits);

// A string, or up to 16 of them.
Result<std::vector<std::string>> read_stop(const JsonNode& root, std::string_view key);

}  // namespace reckoner
