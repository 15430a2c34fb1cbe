// Ranges of versions: ">=0.5.4, <0.5.10".
#pragma once

#include <string_view>

#include "base/result.h"

namespace reckoner::findings {

// Whether `version` meets every condition of `range`. Numbers are compared one by one, missing ones are 0; what follows the numbers
// ("rc4", "+cu130") does not count, and neither does a "v" before them. Error: this is no range.
Result<bool> version_within(std::string_view version, std::string_view range);

}  // namespace reckoner::findings
