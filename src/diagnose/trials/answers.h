// What is to be thought of an answer's text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace reckoner::trials {

// Why the text is no language, in words; empty: nothing against it. Looks for U+FFFD, bytes that are no UTF-8, the same character or
// the same few words over and over.
std::string complaint_about(std::string_view text);

std::int64_t replacement_characters(std::string_view text);

// FNV-1a, 16 hexadecimal digits: equal texts have equal ones.
std::string fingerprint_of(std::string_view text);

}  // namespace reckoner::trials
