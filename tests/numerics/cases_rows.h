// What tests of the row ops share.
#pragma once

#include "cases_cache.h"

namespace reckoner {

inline void put(const OwnedTensor& tensor, const std::vector<float>& values) { std::copy(values.begin(), values.end(), tensor->f32()); }
inline void clear(const OwnedTensor& tensor) { std::memset(tensor->data, 0x7f, static_cast<std::size_t>(tensor->bytes())); }

inline std::int64_t some_tokens(Random& random) { return random.one_of<std::int64_t>({1, 2, 3, 7, 33}); }
inline std::int64_t some_width(Random& random) {
  return random.one_of<std::int64_t>({1, 2, 7, 8, 15, 16, 17, 40, 63, 64, 128, 576, 1000, 6144});
}

struct Angles {
  OwnedTensor cosine, sine;  // [tokens, pairs]
  Angles(std::int64_t tokens, std::int64_t pairs, Random& random) : cosine(DType::f32, {tokens, pairs}), sine(DType::f32, {tokens, pairs}) {
    for (std::int64_t i = 0; i < tokens * pairs; ++i) {
      const double angle = 3 * random.uniform();
      cosine->f32()[i] = static_cast<float>(std::cos(angle));
      sine->f32()[i] = static_cast<float>(std::sin(angle));
    }
  }
};

}  // namespace reckoner
