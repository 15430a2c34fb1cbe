// lint: what is wrong, doubtful or merely odd about a checkpoint, from its metadata, its headers and a bounded share of its values.
#pragma once

#include <filesystem>
#include <functional>

#include "base/result.h"
#include "base/threads.h"
#include "diagnose/lint/finding.h"

namespace reckoner::lint {

enum class LintDepth : std::uint8_t {
  load,    // metadata, headers and tensor-wide scales: what a load can afford
  sample,  // also a piece of each tensor of block scales and of weights, the tokenizer and its template
  deep,    // every scale, and every FP8 weight
};

struct LintOptions {
  LintDepth depth = LintDepth::sample;
  std::int64_t sample_bytes = std::int64_t{256} << 20;                       // of block scales and weights, spread over the tensors
  bool hash = false;                                                         // compare files with the checksums that a download left
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};  // bytes of a deep look or of hashing; from the calling thread
};

// Goes on after a part that cannot be read. Error: this is no model folder at all (neither a config.json nor a safetensors file).
Result<LintReport> lint_folder(const std::filesystem::path& folder, const LintOptions& options, ThreadPool& pool);
}  // namespace reckoner::lint
