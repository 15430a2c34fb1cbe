// ModulePatterns: the lists of modules in quantisation metadata. Each method spells them in its own way.
#pragma once

#include <cstdint>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace reckoner {

enum class PatternDialect : std::uint8_t {
  globs,             // ModelOpt: shell globs over the whole name
  names_or_regexes,  // compressed-tensors: names, or "re:" and a regular expression that matches at the start of the name
  names,             // FP8: names; each also stands for what is inside it, and may leave out the beginning
};

class ModulePatterns {
 public:
  ModulePatterns() = default;
  ModulePatterns(std::vector<std::string> texts, PatternDialect dialect);

  const std::vector<std::string>& texts() const { return texts_; }
  bool empty() const { return texts_.empty(); }
  // Whether any pattern covers the module (a tensor's name without ".weight").
  bool matches(std::string_view module) const;
  // Whether this one does.
  bool matches(std::size_t pattern, std::string_view module) const;
  // Whether the pattern is one name, without wildcards.
  bool is_name(std::size_t pattern) const;

 private:
  std::vector<std::string> texts_;
  PatternDialect dialect_ = PatternDialect::globs;
  std::vector<std::shared_ptr<const std::regex>> regexes_;  // one a pattern; null where it is none, or one that cannot be compiled
  std::set<std::string, std::less<>> names_;                // dialect names: all of them, for one look-up a part of the module's name
};

// Shell globs as Python's fnmatch has them: * (dots included), ?, [abc], [a-z], [!a]. Case matters.
bool glob_matches(std::string_view glob, std::string_view text);

}  // namespace reckoner
