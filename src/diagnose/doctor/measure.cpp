// Speeds that are measured: of a disk and of the memory.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "base/threads.h"
#include "diagnose/doctor/host.h"

namespace reckoner::doctor {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kSampleBytes = 256'000'000;
constexpr std::int64_t kPieceBytes = 4 << 20;  // a multiple of every disk's block
constexpr double kMostSeconds = 2;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Descriptor {
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number;
};

struct FreeAligned {
  void operator()(std::byte* memory) const { std::free(memory); }
};

fs::path largest_file(const fs::path& folder) {
  fs::path largest;
  std::uintmax_t most = 0;
  std::error_code failure;
  for (auto entry = fs::directory_iterator(folder, failure); !failure && entry != fs::directory_iterator(); entry.increment(failure)) {
    std::error_code ignored;
    const std::uintmax_t bytes = entry->is_regular_file(ignored) ? entry->file_size(ignored) : 0;
    if (bytes > most) {
      most = bytes;
      largest = entry->path();
    }
  }
  return largest;
}

// Reads until the sample or the time is used up; gives bytes a second, 0 for an error.
double read_rate(int file, std::int64_t file_bytes) {
  const std::unique_ptr<std::byte, FreeAligned> memory(static_cast<std::byte*>(std::aligned_alloc(4096, kPieceBytes)));
  if (memory == nullptr) return 0;
  // From the middle: the beginning may lie in a cache of the disk.
  const std::int64_t first = file_bytes / 2 / kPieceBytes * kPieceBytes;
  const Clock::time_point start = Clock::now();
  std::int64_t done = 0;
  while (done < kSampleBytes && seconds_since(start) < kMostSeconds) {
    const ::ssize_t got = ::pread(file, memory.get(), kPieceBytes, first + done);
    if (got < 0) return 0;
    done += got;
    if (got < kPieceBytes) break;
  }
  return static_cast<double>(done) / seconds_since(start);
}

}  // namespace

DiskFacts measure_disk(const fs::path& folder) {
  DiskFacts disk;
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) == 0)
    disk.free_bytes = static_cast<std::int64_t>(space.f_bavail) * static_cast<std::int64_t>(space.f_frsize);
  const fs::path path = largest_file(folder);
  struct stat about {};
  if (path.empty() || ::stat(path.c_str(), &about) != 0) {
    disk.how = "there is no file to read";
  } else if (about.st_size < 8 * kPieceBytes) {
    disk.how = "the files are too small to tell";
  } else if (about.st_blocks * 512 < about.st_size * 9 / 10) {
    disk.how = "the largest file has holes";
  } else {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    const double rate = file.number < 0 ? 0 : read_rate(file.number, about.st_size);
    if (rate > 0) disk.read_gbs = rate / 1e9;
    disk.how = rate > 0 ? "one reader, past the page cache" : "this file system does not read past the page cache";
  }
  return disk;
}

double measure_memory_gbs(ThreadPool& pool) {
  constexpr std::int64_t kElements = kSampleBytes / 8;
  constexpr std::int64_t kPieces = 64;
  const auto memory = std::make_unique<std::uint64_t[]>(kElements);  // zeroed: every page is there
  std::atomic<std::uint64_t> sum = 0;
  const auto read_all = [&] {
    pool.parallel_for(kPieces, [&](std::int64_t piece, int) {
      const std::uint64_t* const from = memory.get() + piece * (kElements / kPieces);
      std::uint64_t sums[8] = {};
      for (std::int64_t i = 0; i < kElements / kPieces; i += 8) {
        for (int lane = 0; lane < 8; ++lane) sums[lane] += from[i + lane];
      }
      for (const std::uint64_t one : sums) sum += one;
    });
  };
  // The best of a few: neighbours and sleeping cores only slow it down.
  double best = 0;
  const Clock::time_point start = Clock::now();
  while (seconds_since(start) < 0.1) {
    const Clock::time_point begun = Clock::now();
    read_all();
    best = std::max(best, kSampleBytes / seconds_since(begun));
  }
  return (best + static_cast<double>(sum.load() & 1)) / 1e9;  // the sum is 0; nobody else may know
}

}  // namespace reckoner::doctor
