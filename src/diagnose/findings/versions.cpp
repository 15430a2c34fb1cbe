#include "diagnose/findings/versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstdint>
#include <vector>

namespace reckoner::findings {
namespace {

std::vector<std::int64_t> numbers(std::string_view version) {
  std::vector<std::int64_t> all;
  if (version.starts_with('v')) version.remove_prefix(1);
  while (!version.empty()) {
    std::int64_t number = 0;
    const auto [end, failure] = std::from_chars(version.data(), version.data() + version.size(), number);
    if (failure != std::errc()) break;
    all.push_back(number);
    version.remove_prefix(static_cast<std::size_t>(end - version.data()));
    if (!version.starts_with('.')) break;
    version.remove_prefix(1);
  }
  while (!all.empty() && all.back() == 0) all.pop_back();
  return all;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

Result<bool> holds(const std::vector<std::int64_t>& version, std::string_view condition) {
  const std::size_t digits = condition.find_first_not_of("<>=");
  const std::string_view sign = condition.substr(0, digits);
  const std::string_view bound = digits == std::string_view::npos ? "" : trimmed(condition.substr(digits));
  const bool is_number = !bound.empty() && bound.front() >= '0' && bound.front() <= '9';
  const std::strong_ordering order = version <=> numbers(bound);
  if (is_number && sign == ">=") return order >= 0;
  if (is_number && sign == ">") return order > 0;
  if (is_number && sign == "<=") return order <= 0;
  if (is_number && sign == "<") return order < 0;
  if (is_number && sign == "==") return order == 0;
  return Error{fmt::format("'{}' is no condition on a version", condition), "write for example \">=0.5.4, <0.5.10\""};
}

}  // namespace

Result<bool> version_within(std::string_view version, std::string_view range) {
  const std::vector<std::int64_t> found = numbers(version);
  bool within = true;
  while (true) {
    const std::size_t comma = range.find(',');
    const bool one = TRY(holds(found, trimmed(range.substr(0, comma))));
    within = within && one;
    if (comma == std::string_view::npos) return within;
    range.remove_prefix(comma + 1);
  }
}

}  // namespace reckoner::findings
