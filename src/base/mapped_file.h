// MappedFile: a whole file as read-only memory; read_text_file: a small file as a string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace reckoner {

// A read-only mapping of a whole, non-empty regular file. Pages are read when touched, so opening costs nothing. The file must not
// shrink while it is mapped: touching a page beyond its new end kills the process (SIGBUS).
class MappedFile {
 public:
  // Errors: the file is absent, a folder or another non-file, unreadable, or empty.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::int64_t size_bytes() const { return static_cast<std::int64_t>(size_); }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Hints to the kernel for the whole file: it will be read from front to back; it will be read soon.
  void advise_sequential() const;
  void advise_will_need() const;

  // Reads the pages of [offset, offset + size) in now; the part outside the file is ignored. Returns when they are in memory.
  void prefetch(std::int64_t offset, std::int64_t size) const;

  // Takes the pages that hold any of [offset, offset + size) out of this process's memory; touching them reads them again.
  void drop(std::int64_t offset, std::int64_t size) const;

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// True for the small text file that Git leaves in place of a large one when Git LFS did not fetch it.
bool is_lfs_pointer(std::span<const std::byte> bytes);

// The content of a text file of at most `max_bytes`; empty is fine. Errors: absent, a folder, unreadable, larger.
Result<std::string> read_text_file(const std::filesystem::path& path, std::int64_t max_bytes);

}  // namespace reckoner
