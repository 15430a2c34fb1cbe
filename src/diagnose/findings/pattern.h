// Pattern: what a finding looks for in a line of a log.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace reckoner::findings {

enum class PatternKind : std::uint8_t {
  literal,  // the text somewhere in the line, whatever the case of its ASCII letters
  regex,    // Perl's syntax
};

// A line, with what every pattern wants to know of it worked out once.
struct Line {
  explicit Line(std::string_view text);
  std::string_view text;  // the first kMaxBytes of it
  std::string lower;      // its ASCII letters in lower case
  static constexpr std::size_t kMaxBytes = 64 << 10;
};

// Copies share what was compiled.
class Pattern {
 public:
  static Result<Pattern> compile(PatternKind kind, std::string text);

  // False also for a line on which the regular expression would take too long.
  bool matches(const Line& line) const;

  PatternKind kind() const { return kind_; }
  const std::string& text() const { return text_; }
  // In lower case: every line that matches has one of them; none when the expression gives nothing away.
  const std::vector<std::string>& literals() const { return literals_; }

 private:
  struct Compiled;

  PatternKind kind_ = PatternKind::literal;
  std::string text_;
  std::vector<std::string> literals_;
  std::shared_ptr<const Compiled> compiled_;
};

// ASCII letters in lower case, all other bytes as they are.
std::string lower_ascii(std::string_view text);

}  // namespace reckoner::findings
