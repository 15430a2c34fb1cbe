#include "loadgen/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "base/json.h"
#include "loadgen/words.h"

namespace reckoner::loadgen {
namespace {

constexpr const char* kLineForm = R"(each line is {"prompt": "..."} or {"messages": [...]}, with "output_tokens" if you like)";
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 30;

std::int64_t random_length(std::int64_t length, double ratio, Random& random) {
  const auto low = std::max<std::int64_t>(1, std::llround(std::floor(static_cast<double>(length) * (1 - ratio))));
  const auto high = std::max<std::int64_t>(low, std::llround(std::ceil(static_cast<double>(length) * (1 + ratio))));
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// Groups of prompts begin with texts of their own: numbers that no prompt has.
constexpr std::uint64_t kFirstPrefix = std::uint64_t{1} << 40;

Result<Sample> sample_from(const JsonNode& line, const LoadOptions& options) {
  const auto prompt = TRY(line.optional("prompt"));
  const auto messages = TRY(line.optional("messages"));
  auto length = TRY(line.optional("output_tokens"));
  if (!length) length = TRY(line.optional("max_tokens"));
  if (prompt.has_value() == messages.has_value()) {
    return line.error(prompt ? "has both 'prompt' and 'messages'" : "has neither 'prompt' nor 'messages'", kLineForm);
  }
  Sample sample{.max_tokens = options.output_tokens};
  if (length) sample.max_tokens = TRY(length->as_int64(1, kMaxTokens));
  if (prompt) {
    sample.prompt = TRY(prompt->as_string());
    return sample;
  }
  if (options.api == Api::completions) return messages->error("completions take a prompt, no messages", "use --endpoint chat");
  const std::vector<JsonNode> list = TRY(messages->as_array());
  if (list.empty()) return messages->error("there is no message", kLineForm);
  sample.messages_json = boost::json::serialize(messages->value());
  return sample;
}

}  // namespace

TokenScale token_scale(std::int64_t few_words, std::int64_t few_tokens, std::int64_t many_words, std::int64_t many_tokens) {
  CHECK(few_words < many_words);
  const double slope = static_cast<double>(many_tokens - few_tokens) / static_cast<double>(many_words - few_words);
  const double per_word = std::max(0.05, slope);
  return {.per_word = per_word, .overhead = std::max(0.0, static_cast<double>(few_tokens) - per_word * static_cast<double>(few_words))};
}

std::int64_t words_for(double tokens, const TokenScale& scale) {
  return std::max<std::int64_t>(1, std::llround((tokens - scale.overhead) / scale.per_word));
}

std::vector<Sample> random_samples(const LoadOptions& options, std::int64_t count, const TokenScale& scale) {
  Random random(mixed(options.seed, 0));
  std::vector<std::string> prefixes;
  if (options.dataset == DatasetKind::shared_prefix) {
    const std::int64_t words = words_for(static_cast<double>(options.prefix_tokens), {.per_word = scale.per_word});
    for (std::int64_t i = 0; i < options.num_prefixes; ++i) {
      prefixes.push_back(random_text(words, options.seed, kFirstPrefix + static_cast<std::uint64_t>(i)) + " ");
    }
  }
  std::vector<Sample> samples(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto tokens = static_cast<double>(random_length(options.input_tokens, options.range_ratio, random));
    samples[i].max_tokens = random_length(options.output_tokens, options.range_ratio, random);
    samples[i].prompt = random_text(words_for(tokens, scale), options.seed, i);
    if (!prefixes.empty()) samples[i].prompt.insert(0, prefixes[i % prefixes.size()]);
  }
  return samples;
}

Result<std::vector<Sample>> read_samples(const std::filesystem::path& path, const LoadOptions& options) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)), "name a file with --dataset-path"};
  std::vector<Sample> samples;
  std::string text;
  for (std::int64_t number = 1; std::getline(file, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", path.string(), number);
    Result<JsonDocument> document = parse_json(text, where);
    if (!document) return Error{document.error().what, kLineForm};
    samples.push_back(TRY(sample_from(document->root(), options)));
  }
  if (file.bad()) return Error{fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)), "name a file"};
  if (samples.empty()) return Error{fmt::format("{}: there is nothing in it", path.string()), kLineForm};
  return samples;
}

std::vector<Sample> repeated(const std::vector<Sample>& samples, std::int64_t count) {
  CHECK(!samples.empty());
  std::vector<Sample> all;
  const std::size_t wanted = count > 0 ? static_cast<std::size_t>(count) : samples.size();
  for (std::size_t i = 0; i < wanted; ++i) all.push_back(samples[i % samples.size()]);
  return all;
}

}  // namespace reckoner::loadgen
