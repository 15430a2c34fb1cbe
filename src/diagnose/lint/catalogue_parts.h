// The parts of the catalogue, each in a file of its name.
#pragma once

#include <span>

#include "diagnose/lint/finding.h"

namespace reckoner::lint {

std::span<const FindingKind> file_kinds();   // files, shards, index, config.json
std::span<const FindingKind> quant_kinds();  // quantisation metadata and scales
std::span<const FindingKind> model_kinds();  // MTP, rope, indexer, head, tokens, templates

}  // namespace reckoner::lint
