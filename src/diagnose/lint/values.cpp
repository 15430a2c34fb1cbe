#include "diagnose/lint/values.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "quant/resolve.h"

namespace reckoner::lint {
namespace {

constexpr std::array<std::string_view, 7> kScaleParts = {
    ".weight_scale", ".weight_scale_2", ".weight_global_scale", ".input_scale", ".input_global_scale", ".k_scale", ".v_scale"};

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

std::vector<const LintTensor*> scalars_of(const LintInput& input) {
  std::vector<const LintTensor*> scalars;
  for (const LintModule& module : input.modules) {
    for (const std::string_view part : kScaleParts) {
      const LintTensor* tensor = module.part(part);
      if (tensor != nullptr && tensor->whole && is_float(tensor->dtype) && tensor->shape.elements() == 1) scalars.push_back(tensor);
    }
  }
  std::sort(scalars.begin(), scalars.end(), [](const LintTensor* a, const LintTensor* b) {
    return std::pair(std::string_view(a->file->name), a->offset) < std::pair(std::string_view(b->file->name), b->offset);
  });
  return scalars;
}

// Neighbours in a file are read together: most files keep all their scales in one place.
struct Run {
  std::size_t first;
  std::size_t count;
  std::int64_t begin;
  std::int64_t end;
};

std::vector<Run> runs_of(const std::vector<const LintTensor*>& tensors) {
  constexpr std::int64_t kGap = 4096;
  constexpr std::int64_t kLongest = std::int64_t{256} << 10;
  std::vector<Run> runs;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const LintTensor& tensor = *tensors[i];
    const bool joins = !runs.empty() && tensors[runs.back().first]->file == tensor.file && tensor.offset - runs.back().end <= kGap &&
                       tensor.offset + tensor.bytes - runs.back().begin <= kLongest;
    if (!joins) runs.push_back({i, 0, tensor.offset, tensor.offset});
    ++runs.back().count;
    runs.back().end = std::max(runs.back().end, tensor.offset + tensor.bytes);
  }
  return runs;
}

}  // namespace

ValueFile::ValueFile(const LintFile& file) : descriptor_(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC)) {
  // Without it the system reads far more than a piece.
  if (descriptor_ >= 0) ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
}

ValueFile::~ValueFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool ValueFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(descriptor_, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return true;
}

ValueFiles::ValueFiles(const LintInput& input) {
  for (const std::unique_ptr<LintFile>& file : input.files) {
    if (file->served && file->header) files_.emplace(file.get(), std::make_unique<ValueFile>(*file));
  }
}

bool ValueFiles::read(const LintTensor& tensor, std::int64_t at, std::span<std::byte> bytes) const {
  const auto file = files_.find(tensor.file);
  return file != files_.end() && file->second->read(tensor.offset + at, bytes);
}

std::optional<bool> equal_values(const LintTensor& a, const LintTensor& b) {
  constexpr std::int64_t kPiece = std::int64_t{256} << 10;
  const ValueFile first(*a.file);
  const ValueFile second(*b.file);
  for (const std::int64_t at : {std::int64_t{0}, (a.bytes - kPiece) / 2, a.bytes - kPiece}) {
    const std::int64_t begin = std::max<std::int64_t>(at, 0);
    std::vector<std::byte> one(static_cast<std::size_t>(std::min(kPiece, a.bytes - begin)));
    std::vector<std::byte> other(one.size());
    if (!first.read(a.offset + begin, one) || !second.read(b.offset + begin, other)) return std::nullopt;
    if (one != other) return false;
  }
  return true;
}

std::int64_t read_scalars(LintInput& input, ThreadPool& pool) {
  const std::vector<const LintTensor*> tensors = scalars_of(input);
  const std::vector<Run> runs = runs_of(tensors);
  const ValueFiles files(input);
  std::vector<std::optional<float>> values(tensors.size());
  pool.parallel_for(static_cast<std::int64_t>(runs.size()), [&](std::int64_t item, int) {
    const Run& run = runs[static_cast<std::size_t>(item)];
    std::vector<std::byte> bytes(static_cast<std::size_t>(run.end - run.begin));
    const LintTensor& first = *tensors[run.first];
    if (!files.read(first, run.begin - first.offset, bytes)) return;
    for (std::size_t i = run.first; i < run.first + run.count; ++i)
      values[i] = element_as_f32({.data = bytes.data() + (tensors[i]->offset - run.begin), .dtype = tensors[i]->dtype, .shape = {}}, 0);
  });
  std::int64_t bytes = 0;
  for (const Run& run : runs) bytes += run.end - run.begin;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (values[i]) input.scalars.emplace(tensors[i], *values[i]);
  }
  return bytes;
}

}  // namespace reckoner::lint
