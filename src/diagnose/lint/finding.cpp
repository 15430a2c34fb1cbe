#include "diagnose/lint/finding.h"

#include <algorithm>

#include "base/check.h"

namespace reckoner::lint {

const FindingKind* find_kind(std::string_view id) {
  const std::span<const FindingKind> kinds = catalogue();
  const auto at = std::find_if(kinds.begin(), kinds.end(), [&](const FindingKind& kind) { return kind.id == id; });
  return at == kinds.end() ? nullptr : &*at;
}

const FindingKind& kind_of(std::string_view id) {
  const FindingKind* kind = find_kind(id);
  CHECK(kind != nullptr, std::string(id));
  return *kind;
}

void LintReport::add(std::string_view id, Finding finding) {
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const FindingGroup& known) { return known.kind->id == id; });
  if (group == groups_.end()) {
    groups_.push_back({.kind = &kind_of(id)});
    group = std::prev(groups_.end());
  }
  ++group->count;
  if (finding.layer) group->layers.insert(*finding.layer);
  if (group->findings.size() < FindingGroup::kKept) group->findings.push_back(std::move(finding));
}

const FindingGroup* LintReport::find(std::string_view id) const {
  const auto at = std::find_if(groups_.begin(), groups_.end(), [&](const FindingGroup& group) { return group.kind->id == id; });
  return at == groups_.end() ? nullptr : &*at;
}

std::vector<const FindingGroup*> LintReport::groups() const {
  std::vector<const FindingGroup*> sorted;
  for (const FindingGroup& group : groups_) sorted.push_back(&group);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const FindingGroup* a, const FindingGroup* b) { return a->kind->severity > b->kind->severity; });
  return sorted;
}

std::int64_t LintReport::count(Severity severity) const {
  std::int64_t count = 0;
  for (const FindingGroup& group : groups_) count += group.kind->severity == severity ? group.count : 0;
  return count;
}

}  // namespace reckoner::lint
