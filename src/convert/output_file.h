// OutputFile: a file that gets its name only when it is whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"

namespace reckoner {

class OutputFile {
 public:
  // Creates "<path>.part" with room for `bytes`; one that is left from an earlier try is overwritten.
  static Result<OutputFile> create(const std::filesystem::path& path, std::int64_t bytes);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  // May be called from several threads at once.
  Status write(std::int64_t offset, std::span<const std::byte> bytes) const;
  // Brings it to the disk and renames it. Without this call the part is removed in the end.
  Status finish();

 private:
  OutputFile(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::filesystem::path path_;
  int descriptor_;
};

// A whole small file.
Status write_file(const std::filesystem::path& path, std::string_view content);
// A copy of a file, symbolic links followed.
Status copy_whole_file(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace reckoner
