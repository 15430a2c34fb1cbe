// What only a hash, a hole or a look at many values shows; and that memory does not grow with the files.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "lint_case.h"

namespace reckoner {
namespace {

namespace fs = std::filesystem;
using lint::LintDepth;
using lint::LintReport;

// SHA-256 of "abc" (FIPS 180-2, appendix B.1).
constexpr const char* kHashOfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

std::string first_text(const LintReport& report, std::string_view id) {
  const lint::FindingGroup* group = report.find(id);
  return group == nullptr ? "" : fmt::format("{}: {}", group->findings.front().where, group->findings.front().what);
}

TEST(LintHash, ComparesWithTheRecordOfADownload) {
  const ModelCopy model(Base::pocket);
  fs::create_directories(model.path() / ".cache/huggingface/download");
  model.write("tokenizer.json", "abc");
  model.write(".cache/huggingface/download/tokenizer.json.metadata", fmt::format("0123abcd\n{}\n1700000000.5\n", kHashOfAbc));
  LintReport report = lint_model(model.path(), {.hash = true});
  EXPECT_FALSE(report.has("hash-mismatch")) << first_text(report, "hash-mismatch");
  EXPECT_EQ(report.find("hash-unknown")->count, 3);  // the shards
  // The same length, one byte off.
  model.write("tokenizer.json", "abd");
  report = lint_model(model.path(), {.hash = true});
  EXPECT_NE(first_text(report, "hash-mismatch").find("tokenizer.json: expected SHA-256 ba7816bf"), std::string::npos)
      << first_text(report, "hash-mismatch");
  EXPECT_FALSE(report.clean());
}

// The hub's cache: snapshots hold links to blobs, which are named by their hash.
TEST(LintHash, FindsAZeroedBlockBehindALinkOfTheCache) {
  const ModelCopy model(Base::pocket);
  const fs::path blobs = model.path() / "blobs";
  const fs::path snapshot = model.path() / "snapshots/1234";
  fs::create_directories(blobs);
  fs::create_directories(snapshot);
  for (const fs::directory_entry& entry : fs::directory_iterator(model.path())) {
    if (entry.is_regular_file()) fs::rename(entry.path(), snapshot / entry.path().filename());
  }
  // Under a wrong name first, which gives the right one: known hashes are checked above.
  fs::rename(snapshot / kShard3, blobs / kHashOfAbc);
  fs::create_symlink("../../blobs/" + std::string(kHashOfAbc), snapshot / kShard3);
  LintReport report = lint_model(snapshot, {.hash = true});
  const std::string text = first_text(report, "hash-mismatch");
  const std::size_t found = text.find("found ");
  ASSERT_NE(found, std::string::npos) << text;
  const std::string hash = text.substr(found + 6);
  ASSERT_EQ(hash.size(), 64u);
  fs::rename(blobs / kHashOfAbc, blobs / hash);
  fs::remove(snapshot / kShard3);
  fs::create_symlink("../../blobs/" + hash, snapshot / kShard3);
  report = lint_model(snapshot, {.hash = true});
  EXPECT_TRUE(report.clean()) << first_text(report, "hash-mismatch");
  // 4096 bytes in the middle become zero; nothing but the hash can tell.
  std::fstream file(blobs / hash, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(1 << 20);
  file.write(std::string(4096, '\0').data(), 4096);
  file.close();
  EXPECT_TRUE(lint_model(snapshot).clean());
  report = lint_model(snapshot, {.hash = true});
  EXPECT_NE(first_text(report, "hash-mismatch").find(kShard3), std::string::npos);
}

// Whether the file system of the tests tells holes from zeros.
bool knows_holes(const fs::path& folder) {
  const fs::path path = folder / "holes";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  const bool made = ::ftruncate(file, 1 << 20) == 0;
  const bool knows = made && ::lseek(file, 0, SEEK_HOLE) == 0;
  ::close(file);
  fs::remove(path);
  return knows;
}

TEST(LintHoles, AreFoundInTheMiddleAndAtTheEnd) {
  const ModelCopy model(Base::pocket);
  if (!knows_holes(model.path())) GTEST_SKIP() << "this file system does not tell holes from zeros";
  const std::string whole = model.read(kShard2);
  const auto write_with_hole = [&](std::size_t begin, std::size_t end) {
    model.remove(kShard2);
    const int file = ::open((model.path() / kShard2).c_str(), O_WRONLY | O_CREAT, 0600);
    EXPECT_EQ(::ftruncate(file, static_cast<off_t>(whole.size())), 0);
    EXPECT_EQ(::pwrite(file, whole.data(), begin, 0), static_cast<ssize_t>(begin));
    EXPECT_EQ(::pwrite(file, whole.data() + end, whole.size() - end, static_cast<off_t>(end)), static_cast<ssize_t>(whole.size() - end));
    ::close(file);
  };
  write_with_hole(1 << 20, (1 << 20) + (64 << 10));
  LintReport report = lint_model(model.path());
  EXPECT_NE(first_text(report, "file-holes").find("65536 of "), std::string::npos) << first_text(report, "file-holes");
  EXPECT_FALSE(report.has("file-not-filled"));
  write_with_hole(1 << 20, whole.size());
  report = lint_model(model.path());
  EXPECT_NE(first_text(report, "file-not-filled").find(kShard2), std::string::npos);
  EXPECT_TRUE(report.has("tensor-all-zero"));
}

// The bytes of memory that the process has at most had since the last reset, or nothing where the system does not say.
std::optional<std::int64_t> peak_memory() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return std::nullopt;
}

bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

// A sparse file: headers of `experts` experts in NVFP4 and as many in FP8, and no data.
std::int64_t write_sparse(const fs::path& path, int experts) {
  std::string header = "{";
  std::int64_t at = 0;
  const auto add = [&](const std::string& name, const char* dtype, const std::string& shape, std::int64_t bytes) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", header.size() > 1 ? "," : "", name,
                          dtype, shape, at, at + bytes);
    at += bytes;
  };
  for (int expert = 0; expert < experts; ++expert) {
    const std::string module = fmt::format("model.layers.3.mlp.experts.{}.up_proj", expert);
    add(module + ".weight", "U8", "1024,1024", 1 << 20);
    add(module + ".weight_scale", "F8_E4M3", "1024,128", 1 << 17);
    add(module + ".weight_scale_2", "F32", "", 4);
    add(module + ".input_scale", "F32", "", 4);
    const std::string other = fmt::format("model.layers.4.mlp.experts.{}.up_proj", expert);
    add(other + ".weight", "F8_E4M3", "1024,2048", 1 << 21);
    add(other + ".weight_scale_inv", "F32", "8,16", 512);
  }
  header += "}";
  std::ofstream file(path, std::ios::binary);
  const std::uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << header;
  file.close();
  const std::int64_t size = 8 + static_cast<std::int64_t>(length) + at;
  fs::resize_file(path, static_cast<std::uintmax_t>(size));
  return size;
}

TEST(LintMemory, DoesNotGrowWithTheFile) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer keeps what is freed for a while: resident memory says nothing";
#endif
  const ModelCopy model(Base::pocket);
  model.remove_all();
  const std::int64_t bytes = write_sparse(model.path() / kFile, 64);
  ASSERT_GT(bytes, std::int64_t{200} << 20);
  for (const LintDepth depth : {LintDepth::load, LintDepth::sample, LintDepth::deep}) {
    const bool was_reset = reset_peak();
    const std::optional<std::int64_t> before = peak_memory();
    if (!was_reset || !before) GTEST_SKIP() << "this system does not report peak memory";
    const LintReport report = lint_model(model.path(), {.depth = depth});
    EXPECT_EQ(report.tensors, 384);
    EXPECT_TRUE(report.has("scale-invalid"));  // zeros all over
    if (depth == LintDepth::deep) { EXPECT_GT(report.read_bytes, std::int64_t{128} << 20); }
    EXPECT_LT(*peak_memory() - *before, std::int64_t{24} << 20);
  }
}

// Two runs look at the same places; a small sample reads less.
TEST(LintSample, IsBoundedAndRepeatable) {
  const LintReport once = lint_model("models/pocket", {.sample_bytes = 1 << 20});
  const LintReport again = lint_model("models/pocket", {.sample_bytes = 1 << 20});
  EXPECT_EQ(once.read_bytes, again.read_bytes);
  EXPECT_LT(once.read_bytes, std::int64_t{3} << 19);
  EXPECT_GT(lint_model("models/pocket", {.depth = LintDepth::deep}).read_bytes, once.read_bytes);
}

}  // namespace
}  // namespace reckoner
