#include "formats/module_patterns.h"

#include <algorithm>

namespace reckoner {
namespace {

// Real patterns and names are a tenth of this. Regular expressions recurse over the text, so a damaged file must not hand in more.
constexpr std::size_t kMaxRegexLength = 512;

std::shared_ptr<const std::regex> compile(std::string_view text) {
  if (text.size() > kMaxRegexLength) return nullptr;
  try {
    return std::make_shared<const std::regex>(text.begin(), text.end(), std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error&) { return nullptr; }
}

// Matches at the start, as Python's re.match does.
bool regex_matches(const std::regex& regex, std::string_view text) {
  if (text.size() > kMaxRegexLength) return false;
  try {
    return std::regex_search(text.begin(), text.end(), regex, std::regex_constants::match_continuous);
  } catch (const std::regex_error&) {  // too complex
    return false;
  }
}

// "self_attn.q_proj" stands for "model.layers.0.self_attn.q_proj" and for all that is inside either.
bool name_covers(std::string_view name, std::string_view module) {
  for (std::size_t at = module.find(name); !name.empty() && at != std::string_view::npos; at = module.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    const bool starts = at == 0 || module[at - 1] == '.';
    const bool ends = end == module.size() || (at == 0 && module[end] == '.');
    if (starts && ends) return true;
  }
  return false;
}

}  // namespace

ModulePatterns::ModulePatterns(std::vector<std::string> texts, PatternDialect dialect)
    : texts_(std::move(texts)), dialect_(dialect), regexes_(texts_.size()) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (dialect_ == PatternDialect::names_or_regexes && texts_[i].starts_with("re:"))
      regexes_[i] = compile(std::string_view(texts_[i]).substr(3));
  }
  if (dialect_ == PatternDialect::names) names_.insert(texts_.begin(), texts_.end());
}

bool ModulePatterns::matches(std::size_t pattern, std::string_view module) const {
  const std::string& text = texts_[pattern];
  switch (dialect_) {
    case PatternDialect::globs:
      return glob_matches(text, module);
    case PatternDialect::names_or_regexes:
      return text.starts_with("re:") ? regexes_[pattern] != nullptr && regex_matches(*regexes_[pattern], module) : text == module;
    case PatternDialect::names:
      return name_covers(text, module);
  }
  return false;
}

bool ModulePatterns::matches(std::string_view module) const {
  if (dialect_ != PatternDialect::names) {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (matches(i, module)) return true;
    }
    return false;
  }
  for (std::size_t dot = module.find('.'); dot != std::string_view::npos; dot = module.find('.', dot + 1)) {
    if (names_.contains(module.substr(0, dot)) || names_.contains(module.substr(dot + 1))) return true;
  }
  return names_.contains(module);
}

bool ModulePatterns::is_name(std::size_t pattern) const {
  const std::string& text = texts_[pattern];
  if (dialect_ == PatternDialect::globs) return text.find_first_of("*?[") == std::string::npos;
  return dialect_ == PatternDialect::names || !text.starts_with("re:");
}

}  // namespace reckoner
