#include "convert/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"

namespace reckoner {
namespace {

constexpr const char* kPart = ".part";

std::string part_of(const std::filesystem::path& path) { return path.string() + kPart; }

Error write_error(const std::filesystem::path& path, int code) {
  return {fmt::format("{}: cannot write the file: {}", path.string(), std::strerror(code)),
          code == ENOSPC || code == EDQUOT ? "free some space, then run the same command again: it goes on where it stopped"
                                           : "check that the folder is writable, then run the same command again"};
}

// The new name is on the disk only when its folder is.
void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::filesystem::path& path, std::int64_t bytes) {
  const int descriptor = ::open(part_of(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return write_error(path, errno);
  OutputFile file(path, descriptor);
  if (::ftruncate(descriptor, bytes) != 0) return write_error(path, errno);
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(part_of(path_).c_str());
}

Status OutputFile::write(std::int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ::ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return write_error(path_, errno);
    offset += count;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Status OutputFile::finish() {
  if (::fsync(descriptor_) != 0) return write_error(path_, errno);
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0) return write_error(path_, errno);
  if (::rename(part_of(path_).c_str(), path_.c_str()) != 0) return write_error(path_, errno);
  sync_folder(path_.parent_path());
  return {};
}

Status write_file(const std::filesystem::path& path, std::string_view content) {
  OutputFile file = TRY(OutputFile::create(path, 0));
  TRY(file.write(0, std::as_bytes(std::span(content))));
  return file.finish();
}

Status copy_whole_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  if (std::filesystem::file_size(from, error) == 0 && !error) return write_file(to, "");
  const MappedFile source = TRY(MappedFile::open(from));
  OutputFile file = TRY(OutputFile::create(to, 0));
  TRY(file.write(0, source.bytes()));
  return file.finish();
}

}  // namespace reckoner
