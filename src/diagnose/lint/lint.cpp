// The list of checks, and their order: what explains others comes first.
#include "diagnose/lint/lint.h"

#include <fmt/format.h>

#include "diagnose/lint/checks.h"
#include "diagnose/lint/values.h"

namespace reckoner::lint {
namespace {

struct CheckEntry {
  Check run;
  LintDepth depth = LintDepth::load;  // from which on it runs
};

constexpr CheckEntry kChecks[] = {
    {check_files},
    {check_holes},
    {check_leftovers},
    {check_index},
    {check_duplicates},
    {check_rope},
    {check_head_dim},
    {check_indexers},
    {check_eos},
    {check_config},
    {check_quant_documents},
    {check_quant_formats},
    {check_ignore_names},
    {check_ignore_lists},
    {check_formats},
    {check_expert_formats},
    {check_shared_experts},
    {check_scale_presence},
    {check_input_scale_presence},
    {check_scalar_scales},
    {check_gate_and_up},
    {check_kv_scales},
    {check_mtp},
    {check_head},
    {check_weights, LintDepth::sample},  // open_model has done it before a load asks
    {check_tokenizer, LintDepth::sample},
    {check_template, LintDepth::sample},
};

bool is_model(const LintInput& input) {
  if (input.config.present || input.index.present) return true;
  for (const std::unique_ptr<LintFile>& file : input.files) {
    if (file->present) return true;
  }
  return false;
}

}  // namespace

Result<LintReport> lint_folder(const std::filesystem::path& folder, const LintOptions& options, ThreadPool& pool) {
  LintInput input = read_input(folder, options);
  if (!is_model(input)) {
    return Error{fmt::format("{}: no model: neither a config.json nor a safetensors file", folder.string()),
                 "give the folder that holds config.json and the safetensors files"};
  }
  LintReport report;
  report.tensors = static_cast<std::int64_t>(input.tensors.size());
  for (const std::unique_ptr<LintFile>& file : input.files) {
    report.files += file->present ? 1 : 0;
    report.file_bytes += file->bytes;
  }
  report.read_bytes = read_scalars(input, pool);
  for (const CheckEntry& check : kChecks) {
    if (check.depth <= options.depth) check.run(input, report);
  }
  if (options.depth >= LintDepth::sample) report.read_bytes += check_values(input, options, pool, report);
  if (options.hash) check_hashes(input, options, pool, report);
  return report;
}

}  // namespace reckoner::lint
