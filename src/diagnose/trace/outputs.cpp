#include "diagnose/trace/outputs.h"

#include <algorithm>

namespace reckoner::trace {

void ReadOutputs::out(const char* name, const Tensor& tensor) {
  if (tensor.empty()) return;
  const std::int64_t count = tensor.shape.elements();
  OutputValues output{.name = name, .values = {}, .row_elements = tensor.shape.rank() < 2 ? 1 : count / tensor.dim(0)};
  output.values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) output.values.push_back(tensor.dtype == DType::f32 ? tensor.f32()[i] : tensor.i32()[i]);
  into_.push_back(std::move(output));
}

void ReadOutputs::cache_out(const char* name, const CacheView& cache) {
  OutputValues output{.name = name, .values = {}, .row_elements = cache.row_elements};
  for (std::int64_t token = 0; token < places_->positions.dim(0); ++token) {
    const std::vector<float> row = cache_row(cache, *places_, token, places_->positions.i32()[token]);
    output.values.insert(output.values.end(), row.begin(), row.end());
  }
  into_.push_back(std::move(output));
}

namespace {

// The positions that a token selected; empty where its count or one of them cannot be.
std::vector<std::int32_t> selected(const Selection& selection, std::int64_t token, std::int64_t positions) {
  const std::int32_t count = selection.counts.i32()[token];
  if (count < 0 || count > selection.top_k()) return {};
  const std::int32_t* const first = selection.positions.i32() + token * selection.top_k();
  std::vector<std::int32_t> all(first, first + count);
  const bool fine = std::is_sorted(all.begin(), all.end()) && std::adjacent_find(all.begin(), all.end()) == all.end() &&
                    (all.empty() || (all.front() >= 0 && all.back() < positions));
  return fine ? all : std::vector<std::int32_t>();
}

// Of a token: the furthest that an exchanged position lies from the edge of the selection, in terms of what its score may be off by.
void compare_token(const IndexSelectArgs& before, const std::vector<std::int32_t>& wanted, const std::vector<std::int32_t>& found,
                   std::int64_t token, OutputDifference& difference) {
  const IndexScores scores = index_scores(before, token);
  double edge = std::numeric_limits<double>::infinity();
  double edge_allowed = 0;
  for (const std::int32_t position : wanted) {
    edge = std::fmin(edge, scores.scores[static_cast<std::size_t>(position)]);
    edge_allowed = std::fmax(edge_allowed, scores.allowed[static_cast<std::size_t>(position)]);
  }
  std::vector<std::int32_t> exchanged;
  std::set_symmetric_difference(wanted.begin(), wanted.end(), found.begin(), found.end(), std::back_inserter(exchanged));
  for (const std::int32_t position : exchanged) {
    const double limit = scores.allowed[static_cast<std::size_t>(position)] + edge_allowed;
    const double error = std::fabs(scores.scores[static_cast<std::size_t>(position)] - edge);
    if (error <= limit && error == 0) continue;
    const double ratio = error <= limit * 1e12 && limit > 0 ? error / limit : std::numeric_limits<double>::infinity();
    if (!(error <= limit)) ++difference.beyond;
    if (ratio <= difference.worst) continue;
    difference.worst = ratio;
    difference.output = "selection.positions";
    difference.row = token;
    difference.column = position;
    difference.expected = edge;
    difference.found = scores.scores[static_cast<std::size_t>(position)];
    difference.allowed = limit;
  }
}

}  // namespace

OutputDifference compare_selections(const IndexSelectArgs& before, const IndexSelectArgs& expected, const IndexSelectArgs& found) {
  OutputDifference difference;
  for (std::int64_t token = 0; token < expected.selection.counts.dim(0); ++token) {
    const std::int64_t positions = before.places.positions.i32()[token] + 1;
    const std::vector<std::int32_t> wanted = selected(expected.selection, token, positions);
    const std::vector<std::int32_t> here = selected(found.selection, token, positions);
    if (wanted == here) continue;
    if (here.size() == wanted.size()) {
      compare_token(before, wanted, here, token, difference);
      continue;
    }
    ++difference.beyond;
    difference.worst = std::numeric_limits<double>::infinity();
    difference.output = "selection.counts";
    difference.row = token;
    difference.column = 0;
    difference.expected = expected.selection.counts.i32()[token];
    difference.found = found.selection.counts.i32()[token];
  }
  return difference;
}

}  // namespace reckoner::trace
