// Numbers and tables as people read them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/settings.h"

namespace reckoner {

// "19.0 MB", "1.25 TB": powers of ten, three digits.
std::string bytes_text(double bytes);
// "12.9 M", "744 G"
std::string count_text(double count);
// "0.02 s", "1 min 20 s"
std::string seconds_text(double seconds);

// One line a setting: what it is, its value, where it comes from and why.
std::string settings_table(const std::vector<Setting>& settings);
// One list after the other, so that they share their columns.
std::vector<Setting> joined(std::vector<Setting> first, const std::vector<Setting>& second);
// For fields that are not used, whose source is their name.
std::vector<Setting> without_sources(std::vector<Setting> settings);

// What screens are laid out for.
inline constexpr std::size_t kScreenColumns = 100;
// Lines of at most kScreenColumns, the first behind `label`, the others below its text; ends with a newline.
std::string wrapped(std::string_view label, std::string_view text);

// Text in double quotes with what is not printable escaped: \n, \t, \", \\, and \xE2 for bytes that are no whole characters.
std::string quoted_text(std::string_view bytes);
// The same without quotes around and for bytes that are text: what is not UTF-8 becomes U+FFFD.
std::string valid_utf8(std::string_view bytes);

}  // namespace reckoner
