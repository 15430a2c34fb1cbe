// generation_config.json: the sampling defaults that the model's authors recommend.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace reckoner {

// Every field is absent when the file (or the field) is.
struct GenerationConfig {
  std::optional<double> temperature;         // >= 0
  std::optional<double> top_p;               // (0, 1]
  std::optional<std::int64_t> top_k;         // >= 0; 0: off (-1 in the file is read as 0)
  std::optional<double> min_p;               // [0, 1]
  std::optional<double> repetition_penalty;  // > 0
  std::optional<bool> do_sample;             // false: greedy
  std::vector<std::int64_t> eos_token_ids;   // empty when absent
};

// An absent file is fine. Errors: malformed JSON, a value out of its range.
Result<GenerationConfig> read_generation_config(const std::filesystem::path& folder);
Result<GenerationConfig> parse_generation_config(const JsonNode& root);

// A token id or a list of them, each in [0, 2^31); empty when the field is absent.
Result<std::vector<std::int64_t>> read_token_ids(const JsonNode& object, std::string_view key);

}  // namespace reckoner
