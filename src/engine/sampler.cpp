#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/check.h"

namespace reckoner {
namespace {

Status check_range(std::string_view name, double value, double low, double high, std::string_view range) {
  if (value >= low && value <= high) return {};  // false for NaN
  return Error{fmt::format("{}: expected {}, found {}", name, range, value),
               fmt::format("give {} a value in that range, or leave it out", name)};
}

// Uniform in [0, 1), a function of seed and draw only (splitmix64's mixing steps).
double uniform(std::uint64_t seed, std::uint64_t draw) {
  std::uint64_t z = seed + (draw + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

bool has_penalties(const SamplingParams& p) { return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0; }

constexpr float kHidden = -std::numeric_limits<float>::infinity();  // the logit of a token that may not be chosen

// A vocabulary has some 150,000 tokens, and a step may sample hundreds of rows. Loops of kLanes turns become vector instructions.
constexpr std::size_t kLanes = 16, kBlockTokens = 64;
constexpr std::size_t kPartBlocks = 128;  // a helper's, some twenty microseconds

float largest_of(std::span<const float> values) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, kHidden);
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
  }
  float largest = *std::max_element(lanes, lanes + kLanes);
  for (; i < values.size(); ++i) largest = std::max(largest, values[i]);
  return largest;
}

std::int32_t first_of(std::span<const float> values, float wanted) {
  return static_cast<std::int32_t>(std::find(values.begin(), values.end(), wanted) - values.begin());
}

// e^x for x <= 0 within two units in the last place; 0 from -87 on. e^x = 2^n e^r with |r| <= log(2) / 2, and e^r by its series. There is
// no branch, and nothing that the compiler would make one of, so that loops of it become vector instructions.
float exp_of_negative(float x) {
  constexpr auto kMost = std::bit_cast<std::int32_t>(87.0f);  // positive floats are ordered as their bits are
  constexpr float kRounds = 0x1.8p23f;                        // adding it leaves no room for digits behind the point
  const std::int32_t size = std::min(std::bit_cast<std::int32_t>(x) & 0x7fffffff, kMost);
  const float within = -std::bit_cast<float>(size);
  const float n = (within * std::numbers::log2e_v<float> + kRounds) - kRounds;
  const float r = (within - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;  // log(2) in two parts: the product with the first is exact
  float sum = ((r * (1.0f / 5040) + 1.0f / 720) * r + 1.0f / 120) * r + 1.0f / 24;
  sum = (((sum * r + 1.0f / 6) * r + 0.5f) * r + 1.0f) * r + 1.0f;
  const std::int32_t bits = std::bit_cast<std::int32_t>(sum) + (static_cast<std::int32_t>(n) << 23);
  return std::bit_cast<float>(bits & (size - kMost) >> 31);
}

double sum_of(const auto& blocks) {
  double sum = 0;
  for (const auto& block : blocks) sum += block.sum;
  return sum;
}

void hide_all_but(std::span<const std::uint32_t> allowed, std::span<float> logits) {
  for (std::size_t word = 0; word * 32 < logits.size(); ++word) {
    if (allowed[word] == 0xffffffffu) continue;
    const std::size_t end = std::min(logits.size(), word * 32 + 32);
    for (std::size_t i = word * 32; i < end; ++i) {
      if ((allowed[word] >> (i % 32) & 1) == 0) logits[i] = kHidden;
    }
  }
}

void penalise(const SamplingParams& p, const TokenCounts& counts, std::span<float> logits) {
  const auto repeat = [&](std::int32_t token) {
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = static_cast<float>(logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty);
  };
  for (const auto& [token, count] : counts.output) {
    repeat(token);
    logits[static_cast<std::size_t>(token)] -= static_cast<float>(p.presence_penalty + p.frequency_penalty * static_cast<double>(count));
  }
  for (const auto& [token, count] : counts.prompt) {
    if (!counts.output.contains(token)) repeat(token);
  }
}

}  // namespace

Status check(const SamplingParams& p, std::int64_t vocab) {
  TRY(check_range("temperature", p.temperature, 0, 100, "a number from 0 to 100"));
  TRY(check_range("top_k", static_cast<double>(p.top_k), 0, 1e9, "0 (off) or a positive number"));
  TRY(check_range("top_p", p.top_p, 1e-12, 1, "a number above 0, at most 1"));
  TRY(check_range("min_p", p.min_p, 0, 1, "a number from 0 to 1"));
  TRY(check_range("repetition_penalty", p.repetition_penalty, 1e-6, 1e6, "a number above 0"));
  TRY(check_range("presence_penalty", p.presence_penalty, -2, 2, "a number from -2 to 2"));
  TRY(check_range("frequency_penalty", p.frequency_penalty, -2, 2, "a number from -2 to 2"));
  for (const auto& [token, bias] : p.logit_bias) {
    TRY(check_range(fmt::format("logit_bias of token {}", token), bias, -1e4, 1e4, "a number from -10000 to 10000"));
    TRY(check_range("logit_bias token", token, 0, static_cast<double>(vocab - 1), fmt::format("a token id below {}", vocab)));
  }
  return {};
}

bool all_finite(std::span<const float> logits) {
  // Of what is not finite, all bits of the exponent are set: of the others the sum carries into no sign.
  constexpr std::uint32_t kExponent = 0x7f800000u, kLast = 0x00800000u;
  std::uint32_t lanes[kLanes] = {}, found = 0;
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] |= (std::bit_cast<std::uint32_t>(logits[i + lane]) & kExponent) + kLast;
  }
  for (; i < logits.size(); ++i) found |= (std::bit_cast<std::uint32_t>(logits[i]) & kExponent) + kLast;
  for (const std::uint32_t lane : lanes) found |= lane;
  return found >> 31 == 0;
}

double log_sum_exp(std::span<const float> logits) {
  const float largest = largest_of(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double log_sum, std::int64_t count) {
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto kept = tokens.begin() + std::min<std::int64_t>(count, static_cast<std::int64_t>(tokens.size()));
  std::partial_sort(tokens.begin(), kept, tokens.end(), [&](std::int32_t a, std::int32_t b) {
    const float of_a = logits[static_cast<std::size_t>(a)], of_b = logits[static_cast<std::size_t>(b)];
    return of_a > of_b || (of_a == of_b && a < b);
  });
  std::vector<TokenLogprob> top;
  for (auto token = tokens.begin(); token != kept; ++token)
    top.push_back({.token = *token, .logprob = logprob_of(logits, log_sum, *token)});
  return top;
}

// The logits after penalties and bias; of tokens that may not be chosen, kHidden.
std::span<const float> Sampler::adjust(std::span<const float> logits, const SamplingParams& p, const TokenCounts& counts,
                                       const SamplingMask& mask) {
  if (!has_penalties(p) && p.logit_bias.empty() && mask.allowed.empty() && mask.forbidden.empty()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  if (has_penalties(p)) penalise(p, counts, adjusted_);
  for (const auto& [token, bias] : p.logit_bias) adjusted_[static_cast<std::size_t>(token)] += static_cast<float>(bias);
  if (!mask.allowed.empty()) hide_all_but(mask.allowed, adjusted_);
  std::vector<float> before;
  for (const std::int32_t token : mask.forbidden) before.push_back(std::exchange(adjusted_[static_cast<std::size_t>(token)], kHidden));
  if (!before.empty() && largest_of(adjusted_) == kHidden) {
    for (std::size_t i = before.size(); i-- > 0;) adjusted_[static_cast<std::size_t>(mask.forbidden[i])] = before[i];
  }
  return adjusted_;
}

// Weights of less than min_p become 0.
void Sampler::weigh_block(std::span<const float> logits, float largest, const SamplingParams& p, std::size_t index) {
  const auto inverse = static_cast<float>(std::min(1 / p.temperature, 1e30)), least = static_cast<float>(p.min_p);
  const std::span<const float> from =
      logits.subspan(index * kBlockTokens).first(std::min(kBlockTokens, logits.size() - index * kBlockTokens));
  float values[kBlockTokens];  // its own memory: or the compiler has to expect that a weight is a logit
  std::fill(std::copy(from.begin(), from.end(), values), values + kBlockTokens, kHidden);
  for (float& value : values) value = exp_of_negative((value - largest) * inverse);
  for (float& value : values) value = value >= least ? value : 0.0f;
  float sums[kLanes] = {}, most[kLanes] = {};
  for (std::size_t first = 0; first < kBlockTokens; first += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float weight = values[first + lane];
      sums[lane] += weight;
      most[lane] = weight > most[lane] ? weight : most[lane];
    }
  }
  std::copy_n(values, kBlockTokens, weights_.data() + index * kBlockTokens);
  blocks_[index] = {.sum = std::accumulate(sums, sums + kLanes, 0.0f), .largest = *std::max_element(most, most + kLanes)};
}

void Sampler::weigh(std::span<const float> logits, float largest, const SamplingParams& p, ThreadPool* helpers) {
  blocks_.resize((logits.size() + kBlockTokens - 1) / kBlockTokens);
  weights_.resize(blocks_.size() * kBlockTokens);
  const auto weigh_range = [&](std::size_t first, std::size_t end) {
    for (std::size_t index = first; index < end; ++index) weigh_block(logits, largest, p, index);
  };
  if (helpers == nullptr || blocks_.size() < kPartBlocks) return weigh_range(0, blocks_.size());
  const auto parts = static_cast<std::int64_t>((blocks_.size() + kPartBlocks - 1) / kPartBlocks);
  helpers->parallel_for(parts, [&](std::int64_t part, int) {
    const std::size_t first = static_cast<std::size_t>(part) * kPartBlocks;
    weigh_range(first, std::min(first + kPartBlocks, blocks_.size()));
  });
}

// Through the tokens by id: past whole blocks, then within one. Rounding may leave a rest: then it is the last that has a weight.
std::int32_t Sampler::draw_of_all(double uniform) const {
  double target = 0;
  for (const Block& block : blocks_) target += uniform * block.sum;
  std::size_t chosen = 0;
  for (std::size_t index = 0; index < blocks_.size(); ++index) {
    if (blocks_[index].sum == 0) continue;
    chosen = index;
    if (target < blocks_[index].sum) break;
    target -= blocks_[index].sum;
  }
  std::size_t token = 0;
  for (std::size_t i = chosen * kBlockTokens; i < (chosen + 1) * kBlockTokens; ++i) {
    if (weights_[i] == 0) continue;
    token = i;
    if ((target -= weights_[i]) < 0) break;
  }
  return static_cast<std::int32_t>(token);
}

// At least those that top_k and top_p will keep: of a peaked distribution a few of the most probable are enough.
void Sampler::collect(std::span<const float> logits, const SamplingParams& p) {
  const double total = sum_of(blocks_);
  for (float least = 0x1p-6f;; least = least > 0x1p-60f ? least * 0x1p-6f : std::numeric_limits<float>::denorm_min()) {
    candidates_.clear();
    double kept = 0;
    for (std::size_t index = 0; index < blocks_.size(); ++index) {
      if (blocks_[index].largest < least) continue;
      for (std::size_t i = index * kBlockTokens; i < (index + 1) * kBlockTokens; ++i) {
        if (weights_[i] < least) continue;
        candidates_.push_back({.logit = logits[i], .weight = weights_[i], .token = static_cast<std::int32_t>(i)});
        kept += weights_[i];
      }
    }
    const bool enough = p.top_k > 0 ? std::ssize(candidates_) >= p.top_k : kept >= p.top_p * total;
    if (enough || least == std::numeric_limits<float>::denorm_min()) return;
  }
}

// Keeps what top_k and top_p keep.
void Sampler::cut(const SamplingParams& p) {
  double total = 0;
  if (p.top_k > 0) {
    if (std::ssize(candidates_) > p.top_k) {
      std::nth_element(candidates_.begin(), candidates_.begin() + p.top_k, candidates_.end());
      candidates_.resize(static_cast<std::size_t>(p.top_k));
    }
    for (const Candidate& candidate : candidates_) total += candidate.weight;
  } else {
    total = sum_of(blocks_);
  }
  if (p.top_p == 1) return;
  // A heap gives them up in order and most are never reached: sorting a whole vocabulary takes many times as long.
  const auto worse = [](const Candidate& a, const Candidate& b) { return b < a; };
  std::make_heap(candidates_.begin(), candidates_.end(), worse);
  double kept = 0;
  auto rest = candidates_.end();
  while (rest != candidates_.begin() && (rest == candidates_.end() || kept < p.top_p * total)) {
    std::pop_heap(candidates_.begin(), rest, worse);
    kept += (--rest)->weight;
  }
  candidates_.erase(candidates_.begin(), rest);
}

std::optional<std::int32_t> Sampler::sample(std::span<const float> logits, const SamplingParams& p, const TokenCounts& counts,
                                            std::uint64_t draw, const SamplingMask& mask, ThreadPool* helpers) {
  CHECK(!logits.empty());
  const std::span<const float> adjusted = adjust(logits, p, counts, mask);
  const float largest = largest_of(adjusted);
  if (largest == kHidden) return std::nullopt;
  if (p.temperature == 0) return first_of(adjusted, largest);
  weigh(adjusted, largest, p, helpers);
  if (p.top_k == 0 && p.top_p == 1) return draw_of_all(uniform(p.seed, draw));
  collect(adjusted, p);
  cut(p);
  // The order of what is left must not depend on how it was cut, or the same draw would choose otherwise.
  std::sort(candidates_.begin(), candidates_.end());
  double kept = 0;
  for (const Candidate& candidate : candidates_) kept += candidate.weight;
  double target = uniform(p.seed, draw) * kept;
  for (const Candidate& candidate : candidates_) {
    target -= candidate.weight;
    if (target < 0) return candidate.token;
  }
  return candidates_.back().token;
}

}  // namespace reckoner
