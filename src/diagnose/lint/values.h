// Reading values: with pread into buffers of a fixed size, so that memory does not grow with the files.
#pragma once

#include <optional>
#include <span>

#include "base/threads.h"
#include "diagnose/lint/input.h"

namespace reckoner::lint {

// A file opened for reading in places. Safe to use from several threads.
class ValueFile {
 public:
  explicit ValueFile(const LintFile& file);
  ~ValueFile();
  ValueFile(const ValueFile&) = delete;
  ValueFile& operator=(const ValueFile&) = delete;
  // False unless all of `bytes` could be read from `offset` on.
  bool read(std::int64_t offset, std::span<std::byte> bytes) const;

 private:
  int descriptor_ = -1;
};

// The served files of a folder.
class ValueFiles {
 public:
  explicit ValueFiles(const LintInput& input);
  // Bytes of a tensor from its byte `at` on; false unless all can be read.
  bool read(const LintTensor& tensor, std::int64_t at, std::span<std::byte> bytes) const;

 private:
  std::map<const LintFile*, std::unique_ptr<ValueFile>> files_;
};

// Whether two tensors of the same size hold the same bytes at their start, middle and end; nothing when one cannot be read.
std::optional<bool> equal_values(const LintTensor& a, const LintTensor& b);

// Reads every tensor-wide scale into input.scalars; returns the bytes read.
std::int64_t read_scalars(LintInput& input, ThreadPool& pool);

// Looks at block scales and weights, as far as options.depth and options.sample_bytes allow; returns the bytes read.
std::int64_t check_values(const LintInput& input, const LintOptions& options, ThreadPool& pool, LintReport& report);

// Compares files with the checksums that their download recorded.
void check_hashes(const LintInput& input, const LintOptions& options, ThreadPool& pool, LintReport& report);

}  // namespace reckoner::lint
