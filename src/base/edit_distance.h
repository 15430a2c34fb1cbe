// How different two words are.
#pragma once

#include <cstddef>
#include <string_view>

namespace reckoner {

// The least number of letters to insert, remove or replace that makes one of the other (Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace reckoner
