// Random numbers for cases.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace reckoner::admission {

// The same numbers on every machine and standard library: only the engine is used, not the library's distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t count) { return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(count)); }
  // In [-1, 1).
  float uniform() { return static_cast<float>(static_cast<std::int32_t>(engine_() >> 32)) * 0x1p-31f; }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(below(static_cast<std::int64_t>(list.size())))];
  }
  std::vector<float> floats(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = uniform();
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace reckoner::admission
