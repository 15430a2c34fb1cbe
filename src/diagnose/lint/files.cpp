// Files: missing, pointers, truncated, never filled, left over.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "base/mapped_file.h"
#include "diagnose/lint/checks.h"

namespace reckoner::lint {
namespace {

namespace fs = std::filesystem;

bool is_pointer(const fs::path& path) {
  constexpr std::uintmax_t kMaxPointerBytes = 1024;
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kMaxPointerBytes) return false;
  const Result<std::string> text = read_text_file(path, kMaxPointerBytes);
  return text && is_lfs_pointer(std::as_bytes(std::span(text->data(), text->size())));
}

bool starts_with_zeros(const fs::path& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file || file->size_bytes() < 8) return false;
  const auto start = file->bytes().first(8);
  return std::all_of(start.begin(), start.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

void unreadable(const LintInput& input, const LintFile& file, LintReport& report) {
  if (is_pointer(file.path)) {
    report.add("lfs-pointer", {file.name, fmt::format("a text of {} bytes in place of a safetensors file", file.bytes)});
  } else if (starts_with_zeros(file.path)) {
    report.add("file-not-filled", {file.name, fmt::format("{} bytes that start with zeros: there is not even a header", file.bytes)});
  } else {
    report.add("file-unreadable", {file.name, own_words(input, file.name, file.error)});
  }
}

// "3 of 12 tensors are incomplete, the first is 'x'"
std::string affected(const LintInput& input, const LintFile& file) {
  std::int64_t all = 0;
  std::int64_t cut = 0;
  const LintTensor* first = nullptr;
  for (const LintTensor& tensor : input.tensors) {
    if (tensor.file != &file) continue;
    ++all;
    if (tensor.whole) continue;
    ++cut;
    if (first == nullptr || tensor.offset < first->offset) first = &tensor;
  }
  return first == nullptr ? "" : fmt::format("; {} of {} tensors are incomplete, the first is '{}'", cut, all, first->name);
}

void layout(const LintInput& input, const LintFile& file, LintReport& report) {
  const SafetensorsHeader& header = *file.header;
  if (file.bytes < header.expected_bytes) {
    report.add("file-truncated", {file.name, fmt::format("expected {} bytes, found {} ({} missing){}", header.expected_bytes, file.bytes,
                                                         header.expected_bytes - file.bytes, affected(input, file))});
  } else if (file.bytes > header.expected_bytes) {
    report.add("file-trailing-bytes", {file.name, fmt::format("expected {} bytes, found {}: {} bytes after the last tensor",
                                                              header.expected_bytes, file.bytes, file.bytes - header.expected_bytes)});
  } else {
    report.add("file-unreadable", {file.name, own_words(input, file.name, header.layout.error().what)});
  }
}

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

// Ranges of a file that the file system has no content for. Empty where it cannot tell.
std::vector<Range> holes_of(const LintFile& file) {
  constexpr std::size_t kMaxHoles = 10'000;
  std::vector<Range> holes;
  const int descriptor = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return holes;
  for (std::int64_t at = 0; at < file.bytes && holes.size() < kMaxHoles;) {
    const std::int64_t begin = ::lseek(descriptor, at, SEEK_HOLE);
    if (begin < 0 || begin >= file.bytes) break;
    const std::int64_t data = ::lseek(descriptor, begin, SEEK_DATA);
    at = data < 0 ? file.bytes : data;
    holes.push_back({begin, at});
  }
  ::close(descriptor);
  return holes;
}

void report_holes(const LintInput& input, const LintFile& file, LintReport& report) {
  const std::vector<Range> holes = holes_of(file);
  std::int64_t bytes = 0;
  for (const Range& hole : holes) bytes += hole.end - hole.begin;
  if (bytes == 0) return;
  std::int64_t tensors = 0;
  const LintTensor* first = nullptr;
  for (const LintTensor& tensor : input.tensors) {
    if (tensor.file != &file) continue;
    const auto hole =
        std::upper_bound(holes.begin(), holes.end(), tensor.offset, [](std::int64_t at, const Range& r) { return at < r.end; });
    if (hole == holes.end() || hole->begin >= tensor.offset + tensor.bytes) continue;
    ++tensors;
    if (first == nullptr || tensor.offset < first->offset) first = &tensor;
  }
  if (first == nullptr) return;
  const std::string what =
      fmt::format("{} of {} bytes were never written; {} tensors are touched, the first is '{}'", bytes, file.bytes, tensors, first->name);
  report.add(holes.back().end == file.bytes ? "file-not-filled" : "file-holes", {file.name, what});
}

}  // namespace

void check_files(const LintInput& input, LintReport& report) {
  for (const std::unique_ptr<LintFile>& file : input.files) {
    if (!file->served) {
      if (file->present) report.add("file-unlisted", {file->name, fmt::format("{} bytes", file->bytes)});
    } else if (!file->present) {
      report.add("file-missing", {file->name, is_symlink(fs::symlink_status(file->path)) ? "a link that leads nowhere" : "not there"});
    } else if (!file->header) {
      unreadable(input, *file, report);
    } else if (!file->header->layout) {
      layout(input, *file, report);
    }
  }
  for (const char* name : {"tokenizer.json", "tiktoken.model"}) {
    if (is_pointer(input.folder / name)) report.add("lfs-pointer", {name, "a text in place of the tokenizer"});
  }
}

void check_holes(const LintInput& input, LintReport& report) {
  for (const std::unique_ptr<LintFile>& file : input.files) {
    if (file->served && file->header && file->header->layout) report_holes(input, *file, report);
  }
}

void check_leftovers(const LintInput& input, LintReport& report) {
  for (const char* place : {"", ".cache/huggingface/download", "../../blobs"}) {
    std::error_code error;
    std::vector<std::string> names;
    for (fs::directory_iterator at(input.folder / place, error), end; !error && at != end; at.increment(error)) {
      const std::string extension = at->path().extension().string();
      if (extension == ".incomplete" || extension == ".part" || extension == ".aria2" || extension == ".crdownload")
        names.push_back((fs::path(place) / at->path().filename()).string());
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) report.add("download-leftovers", {name, "left by a download"});
  }
}

}  // namespace reckoner::lint
