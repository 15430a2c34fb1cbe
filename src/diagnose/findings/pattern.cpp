#include "diagnose/findings/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/regex.hpp>
#include <cstring>

namespace reckoner::findings {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return ::memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
}

// The text after what starts at `at` and is closed by `close`, with escapes in it.
std::size_t skip_group(std::string_view regex, std::size_t at, char open, char close) {
  int depth = 0;
  for (; at < regex.size(); ++at) {
    if (regex[at] == '\\') {
      ++at;
    } else if (regex[at] == close && --depth == 0) {
      return at + 1;
    } else if (regex[at] == open && (open != '[' || depth == 0)) {
      ++depth;
    }
  }
  return regex.size();
}

bool is_optional(std::string_view regex, std::size_t at) {
  return at < regex.size() && (regex[at] == '?' || regex[at] == '*' || regex[at] == '{');
}

// Of each alternative the longest run of plain characters outside of groups: most lines are refused by a search for them, which is much
// quicker than the expression. Nothing where an alternative has none.
std::vector<std::string> longest_literals(std::string_view regex) {
  std::vector<std::string> all;
  std::string best;
  std::string run;
  const auto end_run = [&] {
    if (run.size() > best.size()) best = run;
    run.clear();
  };
  for (std::size_t at = 0; at < regex.size();) {
    const char c = regex[at];
    if (c == '|') {
      end_run();
      all.push_back(lower_ascii(best));
      best.clear();
      ++at;
      continue;
    }
    if (c == '(' || c == '[') {
      end_run();
      at = skip_group(regex, at, c, c == '(' ? ')' : ']');
      continue;
    }
    if (c == '{') {
      end_run();
      at = skip_group(regex, at, '{', '}');
      continue;
    }
    if (std::string_view(".^$*+?").find(c) != std::string_view::npos) {
      end_run();
      ++at;
      continue;
    }
    const bool escaped = c == '\\' && at + 1 < regex.size();
    const char plain = escaped ? regex[at + 1] : c;
    at += escaped ? 2 : 1;
    // \b, \d, \w and their like stand for more than one text.
    if (escaped && std::isalnum(static_cast<unsigned char>(plain)) != 0) {
      end_run();
      continue;
    }
    if (!is_optional(regex, at)) run += plain;
    if (at < regex.size() && std::string_view("?*{+").find(regex[at]) != std::string_view::npos) end_run();
  }
  end_run();
  all.push_back(lower_ascii(best));
  if (std::find(all.begin(), all.end(), "") != all.end()) all.clear();
  return all;
}

}  // namespace

struct Pattern::Compiled {
  boost::regex regex;
};

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

Line::Line(std::string_view line) : text(line.substr(0, kMaxBytes)), lower(lower_ascii(text)) {}

Result<Pattern> Pattern::compile(PatternKind kind, std::string text) {
  Pattern pattern;
  pattern.kind_ = kind;
  pattern.text_ = std::move(text);
  if (pattern.text_.empty()) return Error{"the pattern is empty", "an empty pattern would match every line"};
  if (kind == PatternKind::literal) {
    pattern.literals_ = {lower_ascii(pattern.text_)};
    return pattern;
  }
  try {
    pattern.compiled_ = std::make_shared<const Compiled>(Compiled{boost::regex(pattern.text_, boost::regex::perl)});
    // Also shows expressions that the matcher gives up on.
    if (boost::regex_search("", pattern.compiled_->regex)) return Error{"the expression matches an empty line", "make it say more"};
  } catch (const std::exception& error) {
    return Error{fmt::format("'{}' is no regular expression: {}", pattern.text_, error.what()), "Perl's syntax is understood"};
  }
  pattern.literals_ = longest_literals(pattern.text_);
  return pattern;
}

bool Pattern::matches(const Line& line) const {
  const auto is_there = [&](const std::string& literal) { return contains(line.lower, literal); };
  if (!literals_.empty() && std::none_of(literals_.begin(), literals_.end(), is_there)) return false;
  if (compiled_ == nullptr) return true;
  try {
    return boost::regex_search(line.text.begin(), line.text.end(), compiled_->regex);
  } catch (const std::exception&) {
    return false;  // the matcher gave up on this line
  }
}

}  // namespace reckoner::findings
