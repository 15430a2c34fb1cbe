// A case: what is done to a whole model, and which findings that gives.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "diagnose/lint/lint.h"
#include "support/model_copy.h"

namespace reckoner {

struct LintCase {
  const char* name;
  Base base;
  void (*damage)(const ModelCopy& model);
  // "id: word, word": a finding of this id whose place and text contain these words. Warnings and errors are all of the model's; notes are
  // among the model's notes.
  std::vector<std::string> expected;
};
inline void PrintTo(const LintCase& c, std::ostream* out) { *out << c.name; }

std::span<const LintCase> file_cases();   // files, shards and the index
std::span<const LintCase> quant_cases();  // quantisation metadata, formats, scales
std::span<const LintCase> model_cases();  // MTP, rope, indexer, head, tokens, templates

lint::LintReport lint_model(const std::filesystem::path& folder, const lint::LintOptions& options = {});

}  // namespace reckoner
