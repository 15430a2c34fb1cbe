// What a load is made of: which server, which requests, when they are sent, what is measured.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reckoner::loadgen {

enum class Api { chat, completions };
enum class DatasetKind { random, shared_prefix, file };

// Time to first token; time per output token after it; gap between two pieces of the stream; the whole request.
enum class Metric { ttft, tpot, itl, e2el };
inline constexpr Metric kMetrics[] = {Metric::ttft, Metric::tpot, Metric::itl, Metric::e2el};
std::string_view name(Metric metric);   // "ttft"
std::string_view title(Metric metric);  // "time to first token"

// A request is good when each of its values is at most this.
struct GoodputTarget {
  Metric metric = Metric::ttft;
  double at_most_ms = 0;
};

struct LoadOptions {
  std::string url;
  Api api = Api::chat;
  std::string model;    // empty: the first one that the server lists
  std::string api_key;  // empty: none is sent

  DatasetKind dataset = DatasetKind::random;
  std::string dataset_path;
  std::int64_t num_prompts = 0;  // 0: every line of the file, or 100
  std::int64_t input_tokens = 1024;
  std::int64_t output_tokens = 128;
  double range_ratio = 0;            // lengths lie in [length (1 - ratio), length (1 + ratio)]
  std::int64_t prefix_tokens = 256;  // what prompts of the same group share
  std::int64_t num_prefixes = 10;

  double request_rate = std::numeric_limits<double>::infinity();  // requests a second
  double burstiness = 1;                                          // shape of the gamma distribution; 1: Poisson arrivals
  std::int64_t max_concurrency = 0;                               // 0: no limit
  std::uint64_t seed = 0;
  std::optional<double> temperature = 0.0;
  std::int64_t warmups = 0;
  double timeout_s = 600;  // without a byte from the server

  std::vector<GoodputTarget> goodput;
  std::vector<Metric> metrics = {Metric::ttft, Metric::tpot, Metric::itl, Metric::e2el};
  std::vector<double> percentiles = {50, 90, 99};
  bool ignore_eos = false;
  bool trust_any_certificate = false;
};

}  // namespace reckoner::loadgen
