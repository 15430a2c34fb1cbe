// What tests of attention kernels share.
#pragma once

#include "cases_cache.h"

namespace reckoner {

inline std::vector<TokenCase> some_tokens(const std::vector<std::int64_t>& contexts, std::int64_t count, Random& random) {
  std::vector<TokenCase> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t sequence = random.below(std::ssize(contexts));
    const std::int64_t context = contexts[static_cast<std::size_t>(sequence)];
    // The last position of a sequence as often as any other.
    tokens.push_back({sequence, random.below(2) == 0 ? context - 1 : random.below(context)});
  }
  return tokens;
}

// Bound on the error of one head's y, first order with a factor 2 over all. A score is a float sum of `width` products of a query that
// was scaled first: off by (width + 3) ulp of scale * sum |q k|. Its distance to the largest score is rounded once more: so
//   d = (width + 3) ulp * max_s sum |q k| scale * 2 + ulp * (spread of the scores).
// exp adds 4 ulp. Each block of 64 keys and each piece rescales what came before, once for the sum and once for y: another exp of a
// rounded difference, at most d + 5 ulp each; the differences telescope, so d is paid once and 5 ulp per rescaling. The weights p / sum p
// are then off by 2 (d + rescalings * 5 ulp) relative, y by that times max |value|, plus keys * ulp for its own sum; and the normalised
// sum.
inline double attend_head_bound(const float* q, const std::vector<std::vector<float>>& keys, const std::vector<std::vector<float>>& values,
                                double scale) {
  double magnitude = 0, low = 0, high = 0, largest = 0;
  for (const std::vector<float>& key : keys) {
    double sum = 0, score = 0;
    for (std::size_t i = 0; i < key.size(); ++i) {
      score += scale * q[i] * key[i];
      sum += std::fabs(scale * q[i] * key[i]);
    }
    magnitude = std::max(magnitude, sum);
    low = std::min(low, score);
    high = std::max(high, score);
  }
  for (const std::vector<float>& value : values) {
    for (const float element : value) largest = std::max(largest, std::fabs(static_cast<double>(element)));
  }
  const auto count = static_cast<double>(keys.size());
  const double width = keys.empty() ? 0 : static_cast<double>(keys.front().size());
  const double d = kUlp * (2 * (width + 3) * magnitude + (high - low));
  const double relative = 2 * (d + kUlp * (4 + 5 * (count / 64 + 16))) + 2 * count * kUlp + 4 * kUlp;
  return 2 * std::expm1(relative) * largest;
}

}  // namespace reckoner
