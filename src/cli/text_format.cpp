#include "cli/text_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace reckoner {
namespace {

// Three significant digits and the prefix of the nearest power of a thousand.
std::string with_prefix(double value, std::string_view unit) {
  constexpr std::array<std::string_view, 6> kPrefixes = {"", "k", "M", "G", "T", "P"};
  std::size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  const int decimals = prefix == 0 && value == std::floor(value) ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  const std::string_view space = prefix == 0 && unit.empty() ? "" : " ";
  return fmt::format("{:.{}f}{}{}{}", value, decimals, space, kPrefixes[prefix], unit);
}

// Length of the UTF-8 character at the start of `bytes`, or 0 if there is none.
std::size_t character_length(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xC2 && first < 0xE0 ? 2
                             : (first & 0xF0) == 0xE0        ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  if (length == 0 || length > bytes.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what is beyond U+10FFFF.
  if (length == 3 && ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F))) return 0;
  if (length == 4 && ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F))) return 0;
  return length;
}

std::string escaped(unsigned char byte) {
  switch (byte) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    default:
      return byte < 0x20 || byte >= 0x7F ? fmt::format("\\x{:02X}", byte) : std::string(1, static_cast<char>(byte));
  }
}

}  // namespace

std::string bytes_text(double bytes) { return with_prefix(bytes, "B"); }

std::string count_text(double count) { return with_prefix(count, ""); }

std::string seconds_text(double seconds) {
  if (seconds < 59.95) return fmt::format("{:.{}f} s", seconds, seconds < 9.995 ? 2 : 1);
  const auto whole = static_cast<long long>(std::llround(seconds));
  return fmt::format("{} min {} s", whole / 60, whole % 60);
}

std::string settings_table(const std::vector<Setting>& settings) {
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  constexpr std::size_t kMaxValueWidth = 32;
  for (const Setting& setting : settings) {
    name_width = std::max(name_width, setting.name.size());
    value_width = std::max(value_width, std::min(kMaxValueWidth, setting.value.size()));
  }
  std::string text;
  for (const Setting& setting : settings) {
    const std::string_view separator = setting.source.empty() || setting.note.empty() ? "" : "; ";
    std::string line = fmt::format("  {:{}}  {:{}}  {}{}{}", setting.name, name_width, setting.value, value_width, setting.source,
                                   separator, setting.note);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::vector<Setting> joined(std::vector<Setting> first, const std::vector<Setting>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<Setting> without_sources(std::vector<Setting> settings) {
  for (Setting& setting : settings) setting.source.clear();
  return settings;
}

std::string quoted_text(std::string_view bytes) {
  std::string text = "\"";
  while (!bytes.empty()) {
    const std::size_t length = character_length(bytes);
    text += length > 1 ? std::string(bytes.substr(0, length)) : escaped(static_cast<unsigned char>(bytes.front()));
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return text + "\"";
}

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t length = character_length(bytes);
    text += length > 0 ? bytes.substr(0, length) : "\xEF\xBF\xBD";
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return text;
}

std::string wrapped(std::string_view label, std::string_view text) {
  std::string lines(label);
  std::size_t column = label.size();
  while (!text.empty()) {
    const std::size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    if (column + word.size() > kScreenColumns && column > label.size()) {
      lines.erase(lines.find_last_not_of(' ') + 1);
      lines += "\n" + std::string(label.size(), ' ');
      column = label.size();
    }
    lines += std::string(word) + (space == std::string_view::npos ? "" : " ");
    column += word.size() + 1;
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
  }
  lines.erase(lines.find_last_not_of(' ') + 1);
  return lines + "\n";
}

}  // namespace reckoner
