// A lint report as a person and as a program reads it.
#pragma once

#include <string>
#include <vector>

#include "cli/console.h"
#include "diagnose/lint/lint.h"

namespace reckoner {

std::string lint_text(const std::string& model, const lint::LintReport& report);
std::string lint_json(const std::string& model, const lint::LintReport& report);

// "model.safetensors: tensor 'x': missing (in 58 layers, 174 times)"
std::string folded(const lint::FindingGroup& group);

// Warnings and errors as one line each on stderr, before a model is loaded. Error: there are errors that `accept` does not name, or it
// names an id that does not exist.
void print_lint(const std::string& model, const lint::LintReport& report, Console& console);
Status refuse_lint_errors(const std::string& model, const lint::LintReport& report, const std::vector<std::string>& accept);

}  // namespace reckoner
