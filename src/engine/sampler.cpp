#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

double penalised(double logit, std::int32_t token, const SamplingParams& p, const TokenCounts& counts) {
  const auto in_output = counts.output.find(token);
  const bool seen = in_output != counts.output.end() || counts.prompt.contains(token);
  if (seen && p.repetition_penalty != 1) logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
  if (in_output != counts.output.end()) logit -= p.presence_penalty + p.frequency_penalty * static_cast<double>(in_output->second);
  return logit;
}

bool has_penalties(const SamplingParams& p) { return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0; }

// Greedy, and nothing changes or hides a logit.
bool is_plain_maximum(const SamplingParams& p, const SamplingMask& mask) {
  return p.temperature == 0 && !has_penalties(p) && p.logit_bias.empty() && mask.allowed.empty() && mask.forbidden.empty();
}

bool better(const std::pair<double, std::int32_t>& a, const std::pair<double, std::int32_t>& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
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

double log_sum_exp(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double log_sum, std::int64_t count) {
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto kept = tokens.begin() + std::min<std::int64_t>(count, static_cast<std::int64_t>(tokens.size()));
  std::partial_sort(tokens.begin(), kept, tokens.end(), [&](std::int32_t a, std::int32_t b) {
    return better({logits[static_cast<std::size_t>(a)], a}, {logits[static_cast<std::size_t>(b)], b});
  });
  std::vector<TokenLogprob> top;
  for (auto token = tokens.begin(); token != kept; ++token)
    top.push_back({.token = *token, .logprob = logprob_of(logits, log_sum, *token)});
  return top;
}

// The tokens that may be chosen, with their logits after penalties and bias, by id.
void Sampler::collect(std::span<const float> logits, const SamplingParams& p, const TokenCounts& counts, const SamplingMask& mask) {
  candidates_.clear();
  const bool penalties = has_penalties(p);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<std::int32_t>(i);
    candidates_.emplace_back(penalties ? penalised(logits[i], token, p, counts) : logits[i], token);
  }
  for (const auto& [token, bias] : p.logit_bias) candidates_[static_cast<std::size_t>(token)].first += bias;
  if (!mask.allowed.empty()) {
    std::erase_if(candidates_, [&](const Candidate& candidate) {
      const auto token = static_cast<std::uint32_t>(candidate.second);
      return (mask.allowed[token / 32] >> (token % 32) & 1) == 0;
    });
  }
  const auto forbidden = [&](const Candidate& candidate) {
    return std::binary_search(mask.forbidden.begin(), mask.forbidden.end(), candidate.second);
  };
  if (!mask.forbidden.empty() && !std::all_of(candidates_.begin(), candidates_.end(), forbidden)) std::erase_if(candidates_, forbidden);
}

// Keeps what min_p, top_k and top_p keep; .first is a probability relative to the most probable token's.
void Sampler::cut(const SamplingParams& p) {
  std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.first < p.min_p; });
  if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + p.top_k, candidates_.end(), better);
    candidates_.resize(static_cast<std::size_t>(p.top_k));
  }
  if (p.top_p == 1) return;
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.first;
  // A heap gives them up in order and most are never reached: sorting a whole vocabulary takes many times as long.
  const auto worse = [](const Candidate& a, const Candidate& b) { return better(b, a); };
  std::make_heap(candidates_.begin(), candidates_.end(), worse);
  double kept = 0;
  auto rest = candidates_.end();
  while (rest != candidates_.begin() && (rest == candidates_.end() || kept < p.top_p * total)) {
    std::pop_heap(candidates_.begin(), rest, worse);
    kept += (--rest)->first;
  }
  candidates_.erase(candidates_.begin(), rest);
}

std::optional<std::int32_t> Sampler::sample(std::span<const float> logits, const SamplingParams& p, const TokenCounts& counts,
                                            std::uint64_t draw, const SamplingMask& mask) {
  CHECK(!logits.empty());
  if (is_plain_maximum(p, mask)) return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  collect(logits, p, counts, mask);
  if (candidates_.empty()) return std::nullopt;
  const auto [largest, most_probable] = *std::min_element(candidates_.begin(), candidates_.end(), better);
  if (p.temperature == 0) return most_probable;
  for (Candidate& candidate : candidates_) candidate.first = std::exp((candidate.first - largest) / p.temperature);
  cut(p);
  // The order of what is left must not depend on how it was cut, or the same draw would choose otherwise.
  if (p.top_k > 0 || p.top_p != 1) std::sort(candidates_.begin(), candidates_.end(), better);
  double kept = 0;
  for (const Candidate& candidate : candidates_) kept += candidate.first;
  double target = uniform(p.seed, draw) * kept;
  for (const Candidate& candidate : candidates_) {
    target -= candidate.first;
    if (target < 0) return candidate.second;
  }
  return candidates_.back().second;
}

}  // namespace reckoner
