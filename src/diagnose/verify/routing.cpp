#include "diagnose/verify/routing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

namespace reckoner {
namespace {

// What one row's router says: [experts] each.
struct Row {
  std::vector<float> logits;
  std::vector<float> scores;  // sigmoid + bias: what experts are chosen by
};

Row row_of(const float* logits, const Tensor& bias) {
  Row row{.logits = std::vector<float>(logits, logits + bias.dim(0)), .scores = {}};
  for (std::size_t e = 0; e < row.logits.size(); ++e) row.scores.push_back(1 / (1 + std::exp(-row.logits[e])) + bias.f32()[e]);
  return row;
}

template <class T>
Tensor view_of(std::vector<T>& values, const Shape& shape) {
  return {.data = reinterpret_cast<std::byte*>(values.data()), .dtype = std::is_same_v<T, float> ? DType::f32 : DType::i32, .shape = shape};
}

// The experts that the op's reference chooses, in ascending order.
std::vector<std::int32_t> chosen(const ModelConfig& config, const Row& row, const Tensor& bias) {
  const std::int64_t experts = bias.dim(0);
  const std::int64_t top_k = config.num_experts_per_tok;
  std::vector<float> logits = row.logits;
  std::vector<float> weights(static_cast<std::size_t>(top_k));
  std::vector<std::int32_t> slot_of(static_cast<std::size_t>(top_k)), begin(static_cast<std::size_t>(experts) + 1), tokens(slot_of);
  reference(RouteArgs{.logits = view_of(logits, {1, experts}),
                      .bias = bias,
                      .groups = config.n_group,
                      .top_groups = config.topk_group,
                      .weights = view_of(weights, {1, top_k}),
                      .slot_of = view_of(slot_of, {1, top_k}),
                      .slots = {.begin = view_of(begin, {experts + 1}), .tokens = view_of(tokens, {top_k})}});
  std::vector<std::int32_t> result;
  for (std::int32_t e = 0; e < experts; ++e) {
    if (begin[static_cast<std::size_t>(e) + 1] > begin[static_cast<std::size_t>(e)]) result.push_back(e);
  }
  return result;
}

std::vector<std::int32_t> without(const std::vector<std::int32_t>& all, const std::vector<std::int32_t>& taken) {
  std::vector<std::int32_t> rest;
  std::set_difference(all.begin(), all.end(), taken.begin(), taken.end(), std::back_inserter(rest));
  return rest;
}

// A group's two best scores together: what groups are chosen by.
double group_score(std::span<const float> scores) {
  std::vector<float> best(scores.begin(), scores.end());
  std::sort(best.begin(), best.end(), std::greater<>());
  return best.size() > 1 ? static_cast<double>(best[0]) + best[1] : best[0];
}

// How far exact arithmetic is from taking `to` for `from`: between their scores, or between groups where that of `to` is out.
double gap_between(const ModelConfig& config, const Row& exact, std::int32_t from, std::int32_t to) {
  const double between = static_cast<double>(exact.scores[static_cast<std::size_t>(from)]) - exact.scores[static_cast<std::size_t>(to)];
  if (config.n_group <= 1) return between;
  const std::size_t size = exact.scores.size() / static_cast<std::size_t>(config.n_group);
  std::vector<double> groups;
  for (std::size_t first = 0; first < exact.scores.size(); first += size)
    groups.push_back(group_score(std::span(exact.scores).subspan(first, size)));
  const double theirs = groups[static_cast<std::size_t>(to) / size];
  std::sort(groups.begin(), groups.end(), std::greater<>());
  const double last_kept = groups[static_cast<std::size_t>(config.topk_group - 1)];
  return theirs >= last_kept ? between : last_kept - theirs;
}

double rms(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

}  // namespace

void RouterLog::record(std::int64_t layer, std::int64_t first, const Tensor& logits) {
  std::vector<float>& all = logits_[layer];
  all.resize(static_cast<std::size_t>(first * logits.dim(1)));
  all.insert(all.end(), logits.f32(), logits.f32() + logits.shape.elements());
}

void RoutingGuide::guide(std::int64_t layer, std::int64_t first, const Tensor& logits, double relative_error) {
  const Tensor& bias = weights_.layers[static_cast<std::size_t>(layer)].moe.router_bias;
  const std::int64_t experts = logits.dim(1);
  for (std::int64_t i = 0; i < logits.dim(0); ++i) {
    float* const here = logits.f32() + i * experts;
    const float* const logged = log_.row(layer, first + i, experts);
    const Row exact = row_of(here, bias);
    const std::vector<std::int32_t> expected = chosen(config_, exact, bias);
    const std::vector<std::int32_t> found = chosen(config_, row_of(logged, bias), bias);
    if (expected == found) continue;
    // Of the pairs the one that is hardest to explain. A sigmoid's slope is at most 1/4; both scores move, or two sums of two.
    RoutingChange change{.position = first + i, .layer = layer, .gap = -INFINITY, .allowed = 5 * relative_error * rms(exact.logits)};
    if (config_.n_group <= 1) change.allowed /= 2;
    for (const std::int32_t from : without(expected, found)) {
      for (const std::int32_t to : without(found, expected)) {
        const double gap = gap_between(config_, exact, from, to);
        if (gap > change.gap) change.from = from, change.to = to, change.gap = gap;
      }
    }
    (change.is_tie() ? ties : errors).push_back(change);
    if (change.is_tie()) std::copy(logged, logged + experts, here);
  }
}

}  // namespace reckoner
