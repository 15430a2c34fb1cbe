#include "formats/generation_config.h"

#include <fmt/format.h>

#include <limits>
#include <system_error>

#include "formats/remedy.h"

namespace reckoner {
namespace {

struct Range {
  double min;
  double max;
  bool min_included = true;
};

Result<std::optional<double>> read_number(const JsonNode& root, std::string_view key, Range range) {
  const std::optional<JsonNode> node = TRY(root.optional(key));
  if (!node) return std::optional<double>{};
  const double value = TRY(node->as_float());
  if (value < range.min || value > range.max || (value == range.min && !range.min_included))
    return node->unexpected(
        fmt::format("a number {} {} and at most {}", range.min_included ? "of at least" : "above", range.min, range.max));
  return std::optional<double>{value};
}

}  // namespace

Result<std::vector<std::int64_t>> read_token_ids(const JsonNode& object, std::string_view key) {
  constexpr std::int64_t kMaxToken = std::numeric_limits<std::int32_t>::max();
  std::vector<std::int64_t> ids;
  const std::optional<JsonNode> node = TRY(object.optional(key));
  if (!node) return ids;
  if (!node->is_array()) {
    ids.push_back(TRY(node->as_int64(0, kMaxToken)));
    return ids;
  }
  for (const JsonNode& element : TRY(node->as_array())) ids.push_back(TRY(element.as_int64(0, kMaxToken)));
  return ids;
}

Result<GenerationConfig> parse_generation_config(const JsonNode& root) {
  GenerationConfig config;
  config.temperature = TRY(read_number(root, "temperature", {.min = 0, .max = 100}));
  config.top_p = TRY(read_number(root, "top_p", {.min = 0, .max = 1, .min_included = false}));
  config.min_p = TRY(read_number(root, "min_p", {.min = 0, .max = 1}));
  config.repetition_penalty = TRY(read_number(root, "repetition_penalty", {.min = 0, .max = 100, .min_included = false}));
  if (const std::optional<JsonNode> node = TRY(root.optional("top_k")))
    config.top_k = std::max<std::int64_t>(TRY(node->as_int64(-1, std::numeric_limits<std::int32_t>::max())), 0);
  if (const std::optional<JsonNode> node = TRY(root.optional("do_sample"))) config.do_sample = TRY(node->as_bool());
  config.eos_token_ids = TRY(read_token_ids(root, "eos_token_id"));
  return config;
}

Result<GenerationConfig> read_generation_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "generation_config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return GenerationConfig{};
  const JsonDocument document = TRY(read_json_file(path));
  return with_remedy(parse_generation_config(document.root()), kCorrectFile);
}

}  // namespace reckoner
