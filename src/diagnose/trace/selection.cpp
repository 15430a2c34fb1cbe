#include "diagnose/trace/selection.h"

#include <algorithm>
#include <cmath>

#include "diagnose/trace/bounds.h"

namespace reckoner::trace {
namespace {

// Share of a head's softmax over all positions that the selected ones hold.
double mass_kept(const float* q, const std::vector<std::vector<float>>& rows, const std::int32_t* selected, std::int32_t count,
                 double scale) {
  std::vector<double> scores;
  for (const std::vector<float>& row : rows) {
    double score = 0;
    for (std::size_t i = 0; i < row.size(); ++i) score += static_cast<double>(q[i]) * row[i];
    scores.push_back(scale * score);
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double all = 0, kept = 0;
  for (const double score : scores) all += std::exp(score - largest);
  for (std::int32_t i = 0; i < count; ++i) kept += std::exp(scores[static_cast<std::size_t>(selected[i])] - largest);
  return kept / all;
}

}  // namespace

void add_selection(const AttendLatentArgs& attend, SelectionQuality& quality) {
  const std::int64_t heads = attend.q.dim(1);
  const std::int64_t top_k = attend.selection.top_k();
  for (std::int64_t token = 0; token < attend.q.dim(0); ++token) {
    const std::int64_t positions = attend.places.positions.i32()[token] + 1;
    if (positions <= top_k) continue;  // everything is selected
    std::vector<std::vector<float>> rows;
    for (std::int64_t position = 0; position < positions; ++position)
      rows.push_back(cache_row(attend.cache, attend.places, token, position));
    double kept = 0;
    for (std::int64_t head = 0; head < heads; ++head) {
      kept += mass_kept(attend.q.f32() + (token * heads + head) * attend.q.dim(2), rows, attend.selection.positions.i32() + token * top_k,
                        attend.selection.counts.i32()[token], attend.scale);
    }
    kept /= static_cast<double>(heads);
    if (!std::isfinite(kept)) continue;
    ++quality.rows;
    quality.mass_kept += kept;
    quality.least_kept = std::min(quality.least_kept, kept);
  }
}

}  // namespace reckoner::trace
