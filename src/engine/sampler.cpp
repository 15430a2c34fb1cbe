#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

double log_sum_exp(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

double penalised(double logit, std::int32_t token, const SamplingParams& p, const TokenCounts& counts) {
  const auto in_output = counts.output.find(token);
  const bool seen = in_output != counts.output.end() || counts.prompt.contains(token);
  if (seen && p.repetition_penalty != 1) logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
  if (in_output != counts.output.end()) logit -= p.presence_penalty + p.frequency_penalty * static_cast<double>(in_output->second);
  return logit;
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

SampledToken Sampler::sample(std::span<const float> logits, const SamplingParams& p, const TokenCounts& counts, std::uint64_t draw) {
  CHECK(!logits.empty());
  candidates_.clear();
  const bool penalties = p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<std::int32_t>(i);
    candidates_.emplace_back(penalties ? penalised(logits[i], token, p, counts) : logits[i], token);
  }
  for (const auto& [token, bias] : p.logit_bias) candidates_[static_cast<std::size_t>(token)].first += bias;
  const auto result = [&](std::int32_t token) {
    return SampledToken{token, logits[static_cast<std::size_t>(token)] - log_sum_exp(logits)};
  };
  const double largest = std::min_element(candidates_.begin(), candidates_.end(), better)->first;
  if (p.temperature == 0) return result(std::min_element(candidates_.begin(), candidates_.end(), better)->second);

  // From here on .first is a probability relative to the most probable token, which has 1.
  for (auto& candidate : candidates_) candidate.first = std::exp((candidate.first - largest) / p.temperature);
  std::erase_if(candidates_, [&](const auto& candidate) { return candidate.first < p.min_p; });
  std::sort(candidates_.begin(), candidates_.end(), better);
  if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < candidates_.size()) candidates_.resize(static_cast<std::size_t>(p.top_k));
  double total = 0;
  for (const auto& candidate : candidates_) total += candidate.first;
  double kept = 0;
  std::size_t count = 0;
  while (count < candidates_.size() && (count == 0 || kept < p.top_p * total)) kept += candidates_[count++].first;

  double target = uniform(p.seed, draw) * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    target -= candidates_[i].first;
    if (target < 0) return result(candidates_[i].second);
  }
  return result(candidates_[count - 1].second);
}

}  // namespace reckoner
