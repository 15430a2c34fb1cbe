#include "diagnose/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/single_sequence.h"

namespace reckoner {
namespace {

// log of the sum of e^logit, without overflow.
double log_sum(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

std::int64_t top(std::span<const float> logits) { return std::max_element(logits.begin(), logits.end()) - logits.begin(); }

// The smallest value that at least `share` of the sorted values do not exceed.
double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

class Accumulator {
 public:
  void add(const PositionDivergence& position, bool has_next) {
    kl_.push_back(position.kl);
    same_top_ += position.same_top ? 1 : 0;
    if (!has_next) return;
    ++predicted_;
    loss_a_ -= position.logprob_a;
    loss_b_ -= position.logprob_b;
  }

  CompareReport report(std::int64_t windows) {
    CompareReport report{.windows = windows, .positions = static_cast<std::int64_t>(kl_.size())};
    std::sort(kl_.begin(), kl_.end());
    const auto count = static_cast<double>(kl_.size());
    report.kl_mean = std::accumulate(kl_.begin(), kl_.end(), 0.0) / count;
    report.kl_median = quantile(kl_, 0.5);
    report.kl_p99 = quantile(kl_, 0.99);
    report.kl_max = kl_.back();
    report.top_agreement = static_cast<double>(same_top_) / count;
    report.perplexity_a = std::exp(loss_a_ / static_cast<double>(predicted_));
    report.perplexity_b = std::exp(loss_b_ / static_cast<double>(predicted_));
    return report;
  }

 private:
  std::vector<double> kl_;
  std::int64_t same_top_ = 0;
  std::int64_t predicted_ = 0;
  double loss_a_ = 0;
  double loss_b_ = 0;
};

std::span<const float> row_of(const Tensor& logits, std::int64_t row) {
  return {logits.f32() + row * logits.dim(1), static_cast<std::size_t>(logits.dim(1))};
}

Status check_finite(std::span<const float> logits, const char* model, std::int64_t position) {
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float logit) { return !std::isfinite(logit); });
  if (bad == logits.end()) return {};
  return Error{fmt::format("model {}: the logits after token {} of the text are not finite ({} for token {})", model, position, *bad,
                           bad - logits.begin()),
               "`reckoner run` names the layer; compare with --precision exact"};
}

}  // namespace

PositionDivergence diverge(std::span<const float> logits_a, std::span<const float> logits_b, std::int32_t next) {
  CHECK(logits_a.size() == logits_b.size());
  const double sum_a = log_sum(logits_a);
  const double sum_b = log_sum(logits_b);
  PositionDivergence result{.same_top = top(logits_a) == top(logits_b)};
  for (std::size_t i = 0; i < logits_a.size(); ++i) {
    const double log_a = logits_a[i] - sum_a;
    result.kl += std::exp(log_a) * (log_a - (logits_b[i] - sum_b));
  }
  result.kl = std::max(result.kl, 0.0);  // rounding may leave -1e-17
  if (next < 0) return result;
  result.logprob_a = logits_a[static_cast<std::size_t>(next)] - sum_a;
  result.logprob_b = logits_b[static_cast<std::size_t>(next)] - sum_b;
  return result;
}

Result<CompareReport> compare(StepRunner& a, StepRunner& b, std::span<const std::int32_t> tokens, std::int64_t window,
                              const CompareEvents& events) {
  CHECK(window >= 2 && tokens.size() >= 2);
  const auto total = static_cast<std::int64_t>(tokens.size());
  SingleSequence sequence_a(a);
  SingleSequence sequence_b(b);
  Accumulator accumulator;
  std::int64_t windows = 0;
  const std::int64_t step = std::min({window, a.limits().max_tokens, b.limits().max_tokens});
  for (std::int64_t start = 0; start + 1 < total; start += window) {
    const std::int64_t end = std::min(start + window, total);
    sequence_a.restart();
    sequence_b.restart();
    ++windows;
    for (std::int64_t first = start; first < end; first += step) {
      if (events.interrupted && events.interrupted()) return Error{"interrupted", "give a smaller --max-tokens"};
      const std::int64_t count = std::min(step, end - first);
      const auto part = tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
      const Tensor logits_a = sequence_a.append(part, Sample::yes).logits;
      const Tensor logits_b = sequence_b.append(part, Sample::yes).logits;
      for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t position = first + row;
        TRY(check_finite(row_of(logits_a, row), "A", position));
        TRY(check_finite(row_of(logits_b, row), "B", position));
        const bool has_next = position + 1 < end;
        const std::int32_t next = has_next ? tokens[static_cast<std::size_t>(position + 1)] : -1;
        accumulator.add(diverge(row_of(logits_a, row), row_of(logits_b, row), next), has_next);
      }
      if (events.progress) events.progress(first + count, total);
    }
  }
  return accumulator.report(windows);
}

}  // namespace reckoner
