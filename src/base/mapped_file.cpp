#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace reckoner {
namespace {

// An open regular file; closed at the end of the scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct OpenFile {
  Descriptor descriptor;
  std::int64_t size_bytes;
};

Error system_error(const std::filesystem::path& path, std::string_view action) {
  const int code = errno;
  std::string remedy;
  if (code == ENOENT) remedy = "check the path; if the model was downloaded, download it again to complete it";
  if (code == EACCES) remedy = fmt::format("give the user that runs this read permission: chmod u+r '{}'", path.string());
  return {fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(code)), remedy};
}

Result<OpenFile> open_regular(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not hang. It has no effect on regular files.
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.get() < 0) return system_error(path, "open");
  struct stat info = {};
  if (::fstat(descriptor.get(), &info) != 0) return system_error(path, "read its size");
  if (S_ISDIR(info.st_mode)) return Error{fmt::format("{}: expected a file, found a folder", path.string()), "give the path of a file"};
  if (!S_ISREG(info.st_mode)) return Error{fmt::format("{}: expected a regular file, found a device or pipe", path.string())};
  return OpenFile{std::move(descriptor), info.st_size};
}

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const OpenFile file = TRY(open_regular(path));
  if (file.size_bytes == 0) return Error{fmt::format("{}: the file is empty", path.string()), "download it again"};
  const auto size = static_cast<std::size_t>(file.size_bytes);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor.get(), 0);
  if (memory == MAP_FAILED) return system_error(path, fmt::format("map its {} bytes into memory", size));
  return MappedFile(static_cast<const std::byte*>(memory), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::advise_sequential() const { ::madvise(const_cast<std::byte*>(data_), size_, MADV_SEQUENTIAL); }
void MappedFile::advise_will_need() const { ::madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED); }

void MappedFile::prefetch(std::int64_t offset, std::int64_t size) const {
  const auto begin = static_cast<std::size_t>(std::clamp<std::int64_t>(offset, 0, size_bytes()));
  const auto length = static_cast<std::size_t>(std::clamp<std::int64_t>(size, 0, size_bytes() - static_cast<std::int64_t>(begin)));
  if (length == 0) return;
  const std::size_t page = page_bytes();
  const std::size_t first = begin / page * page;  // madvise wants a page's start; the mapping itself starts at one
#ifdef MADV_POPULATE_READ
  if (::madvise(const_cast<std::byte*>(data_) + first, begin + length - first, MADV_POPULATE_READ) == 0) return;
#endif
  // Kernels before 5.14: touch one byte of every page.
  for (std::size_t at = first; at < begin + length; at += page) static_cast<void>(*const_cast<const volatile std::byte*>(data_ + at));
}

void MappedFile::drop(std::int64_t offset, std::int64_t size) const {
  const auto begin = static_cast<std::size_t>(std::clamp<std::int64_t>(offset, 0, size_bytes()));
  const auto length = static_cast<std::size_t>(std::clamp<std::int64_t>(size, 0, size_bytes() - static_cast<std::int64_t>(begin)));
  const std::size_t first = begin / page_bytes() * page_bytes();
  if (length > 0) ::madvise(const_cast<std::byte*>(data_) + first, begin + length - first, MADV_DONTNEED);
}

bool is_lfs_pointer(std::span<const std::byte> bytes) {
  constexpr std::string_view kStart = "version https://git-lfs.github.com/spec/";
  return bytes.size() >= kStart.size() && std::memcmp(bytes.data(), kStart.data(), kStart.size()) == 0;
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  const OpenFile file = TRY(open_regular(path));
  if (file.size_bytes > max_bytes)
    return Error{fmt::format("{}: expected at most {} bytes, found {}", path.string(), max_bytes, file.size_bytes),
                 "check that this is the right file"};
  std::string text(static_cast<std::size_t>(file.size_bytes), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ::ssize_t count = ::read(file.descriptor.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(path, "read");
    if (count == 0) break;  // it shrank meanwhile; what is there is parsed
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace reckoner
