// What is asked: random text, random text with shared beginnings, or the lines of a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "loadgen/options.h"

namespace reckoner::loadgen {

struct Sample {
  std::string prompt;
  std::string messages_json;  // a chat instead of the prompt; empty: none
  std::int64_t max_tokens = 0;
};

// How many tokens the server makes of a text of n words: overhead + n * per_word. The overhead holds the chat template and the tag that
// random texts begin with.
struct TokenScale {
  double per_word = 1.3;
  double overhead = 0;
};
// Of two texts whose tokens were counted.
TokenScale token_scale(std::int64_t few_words, std::int64_t few_tokens, std::int64_t many_words, std::int64_t many_tokens);
// At least one.
std::int64_t words_for(double tokens, const TokenScale& scale);

// `count` samples of random or shared_prefix, whose prompts have about the tokens that the options ask for.
std::vector<Sample> random_samples(const LoadOptions& options, std::int64_t count, const TokenScale& scale);

// The lines of a file: {"prompt": TEXT} or {"messages": [...]}, with "output_tokens" or "max_tokens" if it should not be the options'.
// Errors name file and line.
Result<std::vector<Sample>> read_samples(const std::filesystem::path& path, const LoadOptions& options);
// As many as asked for, from the first one again when there are too few; 0: each once.
std::vector<Sample> repeated(const std::vector<Sample>& samples, std::int64_t count);

}  // namespace reckoner::loadgen
