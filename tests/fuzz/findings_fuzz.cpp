// Any text as the file of a finding, and behind a zero byte any log: errors and matches, never a crash, and no line for ever.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "diagnose/findings/findings.h"

namespace {

using namespace reckoner::findings;

void match(const std::vector<Finding>& findings, std::string_view log) {
  TextMatcher matcher(findings);
  while (!log.empty()) {
    const std::size_t newline = log.find('\n');
    matcher.add_line(log.substr(0, newline));
    log.remove_prefix(newline == std::string_view::npos ? log.size() : newline + 1);
  }
  for (const TextMatch& match : matcher.matches()) {
    CHECK(match.line_number >= 1 && match.line_number <= matcher.lines() && match.count >= 1);
    CHECK(match.line.size() <= TextMatch::kShownBytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Finding> shipped = load_findings().value();
  const std::string_view whole(reinterpret_cast<const char*>(data), size);
  const std::size_t end = whole.find('\0');
  if (end != std::string_view::npos) match(shipped, whole.substr(end + 1));
  reckoner::Result<Finding> own = parse_finding(whole.substr(0, end), "fuzz.toml");
  if (!own) return 0;
  CHECK(!own->id.empty() && !own->symptoms.empty());
  const std::vector<Finding> one = {std::move(own).value()};
  match(one, whole);
  static_cast<void>(search_words(one, whole));
  return 0;
}
