#include "diagnose/lint/catalogue_parts.h"

namespace reckoner::lint {
namespace {

std::vector<FindingKind> joined() {
  std::vector<FindingKind> kinds;
  for (const std::span<const FindingKind> part : {file_kinds(), quant_kinds(), model_kinds()})
    kinds.insert(kinds.end(), part.begin(), part.end());
  return kinds;
}

}  // namespace

std::span<const FindingKind> catalogue() {
  static const std::vector<FindingKind> kinds = joined();
  return kinds;
}

}  // namespace reckoner::lint
