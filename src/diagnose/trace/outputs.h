// Compares what two runs of an op wrote.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "diagnose/trace/bounds.h"
#include "diagnose/trace/capture.h"
#include "diagnose/trace/values.h"

namespace reckoner::trace {

// One output as numbers, of a cache the rows of its tokens.
struct OutputValues {
  std::string name;
  std::vector<double> values;
  std::int64_t row_elements = 1;
};

// A visitor of an op's Args in the host's memory.
class ReadOutputs {
 public:
  explicit ReadOutputs(std::vector<OutputValues>& into) : into_(into) {}
  void in(const char*, const Tensor&) {}
  void out(const char* name, const Tensor& tensor);
  void inout(const char* name, const Tensor& tensor) { out(name, tensor); }
  void weight(const char*, const Weight&) {}
  void weights(const char*, std::span<const Weight>) {}
  void places(const TokenPlaces& places) { places_ = &places; }
  void cache_in(const char*, const CacheView&) {}
  void cache_out(const char* name, const CacheView& cache);

 private:
  std::vector<OutputValues>& into_;
  const TokenPlaces* places_ = nullptr;
};

template <class Args>
std::vector<OutputValues> outputs_of(const Args& args) {
  std::vector<OutputValues> outputs;
  visit(args, ReadOutputs(outputs));
  return outputs;
}

struct OutputDifference {
  double worst = 0;  // the largest difference in terms of what is allowed; infinite where the bits must agree and do not
  std::string output;
  std::int64_t row = 0;  // of the worst
  std::int64_t column = 0;
  double expected = 0;
  double found = 0;
  double allowed = 0;
  std::int64_t beyond = 0;               // elements beyond what is allowed
  std::int64_t non_finite_expected = 0;  // elements
  std::int64_t non_finite_found = 0;
  // Where one is not finite and the other is: which of the two.
  bool only_found_bad = false, only_expected_bad = false;

  bool agrees() const { return beyond == 0; }
};

// `bounds(output)`: as allowed().
template <class Bounds>
OutputDifference compare_values(const std::vector<OutputValues>& expected, const std::vector<OutputValues>& found, const Bounds& bounds) {
  OutputDifference difference;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::vector<double> allowed_here = bounds(expected[i].name);
    for (std::size_t k = 0; k < expected[i].values.size(); ++k) {
      const double a = expected[i].values[k];
      const double b = found[i].values[k];
      difference.non_finite_expected += std::isfinite(a) ? 0 : 1;
      difference.non_finite_found += std::isfinite(b) ? 0 : 1;
      if (!std::isfinite(a) && !std::isfinite(b)) continue;
      difference.only_found_bad |= !std::isfinite(b);
      difference.only_expected_bad |= !std::isfinite(a);
      const double limit = allowed_here.empty() ? 0 : allowed_here[k];
      const double error = std::fabs(a - b);
      if (error == 0) continue;
      // Also where there is no saying what is allowed.
      const double ratio = std::isfinite(error) && limit > 0 ? error / limit : std::numeric_limits<double>::infinity();
      if (!(error <= limit)) ++difference.beyond;
      if (ratio <= difference.worst) continue;
      difference.worst = ratio;
      difference.output = expected[i].name;
      difference.row = static_cast<std::int64_t>(k) / expected[i].row_elements;
      difference.column = static_cast<std::int64_t>(k) % expected[i].row_elements;
      difference.expected = a;
      difference.found = b;
      difference.allowed = limit;
    }
  }
  return difference;
}

// Selections of real scores: where they differ the scores must be as good as equal.
OutputDifference compare_selections(const IndexSelectArgs& before, const IndexSelectArgs& expected, const IndexSelectArgs& found);

// `before`: what both read.
template <class Args>
OutputDifference compare_outputs(const Args& before, const Args& expected, const Args& found) {
  if constexpr (std::is_same_v<Args, IndexSelectArgs>) {
    return compare_selections(before, expected, found);
  } else {
    return compare_values(outputs_of(expected), outputs_of(found),
                          [&](std::string_view output) { return allowed(before, expected, output); });
  }
}

}  // namespace reckoner::trace
