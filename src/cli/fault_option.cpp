// The hidden option that breaks a value on purpose.
#include <fmt/format.h>

#include <charconv>

#include "cli/runner.h"

namespace reckoner {
namespace {

// The number at the start of `text`, taken off it; -1 if there is none.
std::int64_t take_number(std::string_view& text) {
  std::int64_t number = -1;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  return number;
}

}  // namespace

Result<InjectedFault> parse_fault(const std::string& text, std::int64_t layers) {
  std::string_view rest = text;
  InjectedFault fault{.position = take_number(rest)};
  if (rest.starts_with(':')) {
    rest.remove_prefix(1);
    const std::int64_t layer = take_number(rest);
    if (layer >= 0 && layer < layers && rest == ".attention") fault.place = GuardPlace::attention(layer);
    if (layer >= 0 && layer < layers && rest == ".feed-forward") fault.place = GuardPlace::feed_forward(layer);
  }
  if (fault.position >= 0 && fault.place != Guard::kClean) return fault;
  return Error{fmt::format("--inject-nan: expected POSITION:PLACE with a place such as 0.attention or {}.feed-forward, found '{}'",
                           layers - 1, text),
               "for example --inject-nan 5:1.attention"};
}

}  // namespace reckoner
