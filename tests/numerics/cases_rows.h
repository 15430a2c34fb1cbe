// What tests of the row ops share.
#pragma once

#include "cases_cache.h"
#include "diagnose/admission/rows_cases.h"

namespace reckoner {

inline std::int64_t some_tokens(Random& random) { return random.one_of<std::int64_t>({1, 2, 3, 7, 33}); }
inline std::int64_t some_width(Random& random) {
  return random.one_of<std::int64_t>({1, 2, 7, 8, 15, 16, 17, 40, 63, 64, 128, 576, 1000, 6144});
}

}  // namespace reckoner
