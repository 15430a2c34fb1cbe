// The index against the files, and tensors that are there twice.
#include <fmt/format.h>

#include "diagnose/lint/checks.h"
#include "diagnose/lint/values.h"

namespace reckoner::lint {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

const LintFile* file_of(const LintInput& input, const std::string& name) {
  for (const std::unique_ptr<LintFile>& file : input.files) {
    if (file->name == name) return file.get();
  }
  return nullptr;
}

// Where a tensor of the index is, if it is not where it should be.
void locate(const LintInput& input, const std::string& tensor, const std::string& file, LintReport& report) {
  const LintFile* expected = file_of(input, file);
  if (expected == nullptr || !expected->header) return;  // the file itself is a finding
  const LintTensor* found = input.find(tensor);
  const std::string place = fmt::format("{}: '{}'", kIndex, tensor);
  if (found == nullptr) {
    report.add("index-missing-tensor", {place, fmt::format("{} has no such tensor, nor has any other file", file)});
  } else if (found->file != expected) {
    for (const LintTensor* other = found; other != input.tensors.data() + input.tensors.size() && other->name == tensor; ++other) {
      if (other->file == expected) return;  // it is there, twice
    }
    report.add("index-wrong-file", {place, fmt::format("expected in {}, found in {}", file, found->file->name)});
  }
}

std::string_view same_bytes(const LintTensor& a, const LintTensor& b) {
  if (a.dtype != b.dtype || !(a.shape == b.shape)) return "of another dtype or shape";
  const std::optional<bool> same = equal_values(a, b);
  return !same ? "unreadable" : *same ? "with the same bytes where looked" : "with other bytes";
}

}  // namespace

void check_index(const LintInput& input, LintReport& report) {
  if (!input.index.present) return;
  if (!input.index.error.empty()) return report.add("index-unreadable", {kIndex, input.index.error});
  for (const auto& [tensor, file] : input.weight_map) locate(input, tensor, file, report);
  std::int64_t bytes = 0;
  bool all = true;
  for (const std::unique_ptr<LintFile>& file : input.files) all &= !file->served || file->header;
  for (const LintTensor& tensor : input.tensors) {
    if (!tensor.served) continue;
    bytes += tensor.bytes;
    if (!input.weight_map.contains(tensor.name))
      report.add("index-incomplete", {where(tensor), "not in the index", number_after(tensor.name, "layers.")});
  }
  if (all && input.total_size && *input.total_size != bytes)
    report.add("total-size-off",
               {std::string(kIndex) + ": metadata.total_size", fmt::format("{}; the tensors have {} bytes", *input.total_size, bytes)});
}

void check_duplicates(const LintInput& input, LintReport& report) {
  for (std::size_t i = 1; i < input.tensors.size(); ++i) {
    const LintTensor& first = input.tensors[i - 1];
    const LintTensor& second = input.tensors[i];
    if (first.name != second.name || !first.file->served) continue;
    report.add(second.file->served ? "tensor-twice" : "tensor-twice-unlisted",
               {fmt::format("tensor '{}'", first.name),
                fmt::format("in {} and, {}, in {}", first.file->name, same_bytes(first, second), second.file->name),
                number_after(first.name, "layers.")});
  }
}

}  // namespace reckoner::lint
