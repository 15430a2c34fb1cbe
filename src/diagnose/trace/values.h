// What is known of many values at a glance.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace reckoner::trace {

struct ValueStats {
  std::int64_t count = 0;
  std::int64_t non_finite = 0;
  std::int64_t first_bad = -1;                           // element
  float bad_value = 0;                                   // what it is
  double low = std::numeric_limits<double>::infinity();  // of the finite ones
  double high = -std::numeric_limits<double>::infinity();
  double squares = 0;  // sum, of the finite ones

  double rms() const { return count > non_finite ? std::sqrt(squares / static_cast<double>(count - non_finite)) : 0; }
  double largest() const { return count > non_finite ? std::fmax(std::fabs(low), std::fabs(high)) : 0; }
  bool finite() const { return non_finite == 0; }
  // Goes on counting elements where it was.
  void add(std::span<const float> values) {
    for (const float value : values) {
      if (std::isfinite(value)) {
        low = std::fmin(low, value);
        high = std::fmax(high, value);
        squares += static_cast<double>(value) * value;
      } else if (non_finite++ == 0) {
        first_bad = count;
        bad_value = value;
      }
      ++count;
    }
  }
  // Of several steps.
  void merge(const ValueStats& other) {
    if (first_bad < 0 && other.first_bad >= 0) {
      first_bad = other.first_bad;
      bad_value = other.bad_value;
    }
    count += other.count;
    non_finite += other.non_finite;
    low = std::fmin(low, other.low);
    high = std::fmax(high, other.high);
    squares += other.squares;
  }
};

}  // namespace reckoner::trace
