#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace reckoner {
namespace {

std::filesystem::path write(const std::string& name, std::string_view content) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / ("reckoner_mapped_" + name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(MappedFile, MapsTheWholeFile) {
  const std::filesystem::path path = write("whole", "abc");
  Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size_bytes(), 3);
  file->advise_sequential();
  file->advise_will_need();
  file->prefetch(0, 3);
  file->prefetch(-5, 1000);
  file->prefetch(1000, 5);
  MappedFile moved = std::move(*file);
  EXPECT_EQ(std::to_integer<char>(moved.bytes()[2]), 'c');
  EXPECT_EQ(file->size_bytes(), 0);
  std::filesystem::remove(path);
}

TEST(MappedFile, ErrorsNameThePathAndTheReason) {
  EXPECT_EQ(MappedFile::open("no/such/file").error().what, "no/such/file: cannot open: No such file or directory");
  EXPECT_EQ(MappedFile::open("src").error().what, "src: expected a file, found a folder");
  EXPECT_EQ(MappedFile::open("/dev/null").error().what, "/dev/null: expected a regular file, found a device or pipe");
  const std::filesystem::path path = write("empty", "");
  EXPECT_EQ(MappedFile::open(path).error().what, path.string() + ": the file is empty");
  std::filesystem::remove(path);
}

TEST(MappedFile, DroppedPagesAreReadAgain) {
  const std::filesystem::path path = write("drop", std::string(20000, 'a') + "b");
  const MappedFile file = MappedFile::open(path).value();
  file.prefetch(0, file.size_bytes());
  for (const auto& [offset, size] : {std::pair<std::int64_t, std::int64_t>{0, 20001}, {5000, 3}, {20000, 99}, {-5, 10}, {30000, 1}, {7, 0}})
    file.drop(offset, size);
  EXPECT_EQ(file.bytes()[0], std::byte{'a'});
  EXPECT_EQ(file.bytes()[20000], std::byte{'b'});
  std::filesystem::remove(path);
}

TEST(MappedFile, APipeDoesNotHang) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "reckoner_mapped_pipe";
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(path).error().what, path.string() + ": expected a regular file, found a device or pipe");
  std::filesystem::remove(path);
}

TEST(ReadTextFile, ReadsUpToTheLimit) {
  const std::filesystem::path path = write("text", "12345");
  EXPECT_EQ(*read_text_file(path, 5), "12345");
  EXPECT_EQ(read_text_file(path, 4).error().what, path.string() + ": expected at most 4 bytes, found 5");
  std::filesystem::remove(path);
}

TEST(IsLfsPointer, KnowsTheFirstLine) {
  constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
  EXPECT_TRUE(is_lfs_pointer(std::as_bytes(std::span(kPointer))));
  EXPECT_FALSE(is_lfs_pointer(std::as_bytes(std::span(kPointer.substr(0, 10)))));
}

}  // namespace
}  // namespace reckoner
