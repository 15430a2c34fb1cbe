#include "ops/attend_rows.h"

#include <algorithm>
#include <cmath>

namespace reckoner {

void attend_rows(const float* q, const RowsOfFloats& keys, const RowsOfFloats& values, float scale, std::int64_t width, float* y) {
  std::vector<double> p;
  for (const std::vector<float>& key : keys) {
    double dot = 0;
    for (std::size_t i = 0; i < key.size(); ++i) dot += static_cast<double>(q[i]) * key[i];
    p.push_back(dot * scale);
  }
  const double largest = p.empty() ? 0 : *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - largest);
  for (std::int64_t i = 0; i < width; ++i) {
    double value = 0;
    for (std::size_t s = 0; s < values.size(); ++s) value += p[s] / sum * values[s][static_cast<std::size_t>(i)];
    y[i] = static_cast<float>(value);
  }
}

}  // namespace reckoner
