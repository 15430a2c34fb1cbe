// The list of checks. A new one is one function and one line in lint.cpp; its kinds of findings go into the catalogue.
#pragma once

#include "diagnose/lint/input.h"

namespace reckoner::lint {

using Check = void (*)(const LintInput& input, LintReport& report);

// files.cpp: is every file there and whole?
void check_files(const LintInput& input, LintReport& report);
void check_holes(const LintInput& input, LintReport& report);
void check_leftovers(const LintInput& input, LintReport& report);
// index.cpp: does the index fit the files?
void check_index(const LintInput& input, LintReport& report);
void check_duplicates(const LintInput& input, LintReport& report);
// quant_lists.cpp: does the quantisation metadata fit the tensors?
void check_quant_documents(const LintInput& input, LintReport& report);
void check_quant_formats(const LintInput& input, LintReport& report);
void check_ignore_names(const LintInput& input, LintReport& report);
void check_ignore_lists(const LintInput& input, LintReport& report);
// modules.cpp: are the parts of the weights there, and alike where they must be?
void check_formats(const LintInput& input, LintReport& report);
void check_expert_formats(const LintInput& input, LintReport& report);
void check_shared_experts(const LintInput& input, LintReport& report);
void check_scale_presence(const LintInput& input, LintReport& report);
void check_input_scale_presence(const LintInput& input, LintReport& report);
// scales.cpp: tensor-wide scales.
void check_scalar_scales(const LintInput& input, LintReport& report);
void check_gate_and_up(const LintInput& input, LintReport& report);
void check_kv_scales(const LintInput& input, LintReport& report);
// mtp.cpp
void check_mtp(const LintInput& input, LintReport& report);
// config.cpp: config.json and generation_config.json.
void check_config(const LintInput& input, LintReport& report);
void check_rope(const LintInput& input, LintReport& report);
void check_head_dim(const LintInput& input, LintReport& report);
void check_indexers(const LintInput& input, LintReport& report);
void check_eos(const LintInput& input, LintReport& report);
// text.cpp: tokenizer and chat template.
void check_tokenizer(const LintInput& input, LintReport& report);
void check_template(const LintInput& input, LintReport& report);
// weights.cpp: would the loader take it?
void check_head(const LintInput& input, LintReport& report);
void check_weights(const LintInput& input, LintReport& report);

}  // namespace reckoner::lint
