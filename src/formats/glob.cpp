#include "formats/module_patterns.h"

namespace reckoner {
namespace {

// Matches one character against the class that starts behind '[' at glob[at]; moves `at` behind its ']'. A '[' without ']' is an
// ordinary character.
bool class_matches(std::string_view glob, std::size_t& at, char character) {
  const bool negated = at < glob.size() && glob[at] == '!';
  const std::size_t first = negated ? at + 1 : at;
  const std::size_t close = glob.find(']', first + 1);  // a ']' in first place is a member
  if (close == std::string_view::npos) return character == '[';
  bool found = false;
  for (std::size_t i = first; i < close; ++i) {
    const bool range = i + 2 < close && glob[i + 1] == '-';
    found |= range ? glob[i] <= character && character <= glob[i + 2] : glob[i] == character;
    if (range) i += 2;
  }
  at = close + 1;
  return found != negated;
}

// Matches the glob's next element, which is not '*', and moves `at` behind it.
bool element_matches(std::string_view glob, std::size_t& at, char character) {
  const char element = glob[at++];
  if (element == '?') return true;
  if (element == '[') return class_matches(glob, at, character);
  return element == character;
}

}  // namespace

// A '*' first matches nothing; on a mismatch the latest one takes one character more. Earlier ones never need to be revisited, so the
// time is at most the product of the lengths.
bool glob_matches(std::string_view glob, std::string_view text) {
  std::size_t at = 0;
  std::size_t position = 0;
  std::size_t after_star = std::string_view::npos;
  std::size_t star_position = 0;
  while (position < text.size()) {
    if (at < glob.size() && glob[at] == '*') {
      after_star = ++at;
      star_position = position;
      continue;
    }
    if (at < glob.size() && element_matches(glob, at, text[position])) {
      ++position;
      continue;
    }
    if (after_star == std::string_view::npos) return false;
    at = after_star;
    position = ++star_position;
  }
  while (at < glob.size() && glob[at] == '*') ++at;
  return at == glob.size();
}

}  // namespace reckoner
