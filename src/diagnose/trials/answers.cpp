#include "diagnose/trials/answers.h"

#include <fmt/format.h>

#include <vector>

#include "diagnose/trials/log_rules.h"

namespace reckoner::trials {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::size_t kSameCharacters = 24;
constexpr std::size_t kRepeats = 8;  // of a group of words, one after the other
constexpr std::size_t kMaxGroupWords = 4;

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = text.find_first_not_of(" \t\r\n", at);
    if (start == std::string_view::npos) break;
    const std::size_t end = std::min(text.find_first_of(" \t\r\n", start), text.size());
    words.push_back(text.substr(start, end - start));
    at = end;
  }
  return words;
}

// The longest run of one printable ASCII character.
std::string repeated_character(std::string_view text) {
  std::size_t run = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    run = i > 0 && text[i] == text[i - 1] ? run + 1 : 1;
    // Lines of a table and indents are made of these.
    if (run >= kSameCharacters && std::string_view(" -=_*#.~\n\t").find(text[i]) == std::string_view::npos) {
      return fmt::format("'{}' {} times in a row", text[i], run);
    }
  }
  return {};
}

std::string repeated_words(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  for (std::size_t group = 1; group <= kMaxGroupWords; ++group) {
    std::size_t same = 0;
    for (std::size_t i = group; i < words.size(); ++i) {
      same = words[i] == words[i - group] ? same + 1 : 0;
      if (same < group * (kRepeats - 1)) continue;
      std::string shown;
      for (std::size_t j = i + 1 - group; j <= i; ++j) shown += fmt::format("{}{}", shown.empty() ? "" : " ", words[j]);
      return fmt::format("'{}' {} times in a row", shown_text(shown, 60), kRepeats);
    }
  }
  return {};
}

}  // namespace

std::int64_t replacement_characters(std::string_view text) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(kReplacement); at != std::string_view::npos; at = text.find(kReplacement, at + 1)) ++count;
  return count;
}

std::string complaint_about(std::string_view text) {
  if (const std::int64_t count = replacement_characters(text); count > 0) return fmt::format("{} U+FFFD in it", count);
  if (replacement_characters(shown_text(text, text.size() * 3)) > 0) return "bytes that are no UTF-8";
  const std::string character = repeated_character(text);
  return character.empty() ? repeated_words(text) : character;
}

std::string fingerprint_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", hash);
}

}  // namespace reckoner::trials
