// Finding: one thing about a checkpoint that a person should know; and the report that holds them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reckoner::lint {

enum class Severity : std::uint8_t {
  note,     // worth knowing; nothing goes wrong here
  warning,  // numbers or behaviour can be wrong, here or with other servers
  error,    // Reckoner does not serve it
};

// What is known about a kind of finding whatever the checkpoint. The table is catalogue.cpp; docs/lint.md lists the ids.
struct FindingKind {
  std::string_view id;  // kebab-case, stable
  Severity severity;
  std::string_view title;     // one line
  std::string_view why;       // why it matters
  std::string_view reckoner;  // what Reckoner does about it
  std::string_view others;    // what other servers do, with the issue; empty when not known
};

std::span<const FindingKind> catalogue();
// The kind of this id, which must exist.
const FindingKind& kind_of(std::string_view id);
// Null when there is none: ids that users type.
const FindingKind* find_kind(std::string_view id);

struct Finding {
  std::string where;  // "model.safetensors: tensor 'lm_head.weight'", "config.json: field 'rope_theta'"
  std::string what;   // what was found there
  std::optional<std::int64_t> layer = {};
  std::optional<std::int64_t> expert = {};
};

// All findings of one kind. A bad export repeats a fault in every expert of every layer: they are counted, and the first ones kept.
struct FindingGroup {
  static constexpr std::size_t kKept = 100;
  const FindingKind* kind = nullptr;
  std::vector<Finding> findings;  // the first kKept
  std::int64_t count = 0;
  std::set<std::int64_t> layers;
};

class LintReport {
 public:
  void add(std::string_view id, Finding finding);
  bool has(std::string_view id) const { return find(id) != nullptr; }
  const FindingGroup* find(std::string_view id) const;

  // Errors first; within a severity in the order in which they were found.
  std::vector<const FindingGroup*> groups() const;
  // Findings of this severity.
  std::int64_t count(Severity severity) const;
  // Neither warnings nor errors.
  bool clean() const { return count(Severity::warning) == 0 && count(Severity::error) == 0; }

  // How much was looked at.
  std::int64_t files = 0;
  std::int64_t tensors = 0;
  std::int64_t file_bytes = 0;
  std::int64_t read_bytes = 0;  // of values: scales and samples

 private:
  std::vector<FindingGroup> groups_;
};

}  // namespace reckoner::lint
