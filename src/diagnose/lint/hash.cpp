// --hash: files against the SHA-256 that the hub recorded when they were downloaded.
#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <system_error>

#include "base/mapped_file.h"
#include "diagnose/lint/values.h"

namespace reckoner::lint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunk = std::size_t{1} << 20;

bool is_sha256(std::string_view text) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == 64 && std::all_of(text.begin(), text.end(), is_hex);
}

// In the cache a file is a link to ../../blobs/<hash>.
std::string from_link(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  const std::string name = target.filename().string();
  return !error && target.parent_path().filename() == "blobs" && is_sha256(name) ? name : "";
}

// `hf download --local-dir` keeps three lines a file: commit, etag (the hash of a large file), time.
std::string from_record(const fs::path& folder, const std::string& name) {
  constexpr std::int64_t kMaxRecord = 4096;
  const Result<std::string> text = read_text_file(folder / ".cache/huggingface/download" / (name + ".metadata"), kMaxRecord);
  if (!text) return {};
  const std::size_t begin = text->find('\n');
  if (begin == std::string::npos) return {};
  std::string etag = text->substr(begin + 1, text->find('\n', begin + 1) - begin - 1);
  while (!etag.empty() && (etag.back() == '\r' || etag.back() == '"')) etag.pop_back();
  if (!etag.empty() && etag.front() == '"') etag.erase(0, 1);
  return is_sha256(etag) ? etag : "";
}

struct Job {
  std::string name;
  fs::path path;
  std::int64_t bytes;
  std::string expected;
  std::string found = {};
};

// Empty when the file cannot be read to its end.
std::string sha256(const Job& job, const std::function<void(std::int64_t)>& advance) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) return {};
  const ValueFile file({.name = job.name, .path = job.path});
  std::vector<std::byte> buffer(kChunk);
  for (std::int64_t at = 0; at < job.bytes;) {
    const auto piece = std::span(buffer).first(std::min(buffer.size(), static_cast<std::size_t>(job.bytes - at)));
    if (!file.read(at, piece) || EVP_DigestUpdate(context.get(), piece.data(), piece.size()) != 1) return {};
    at += static_cast<std::int64_t>(piece.size());
    advance(static_cast<std::int64_t>(piece.size()));
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  if (EVP_DigestFinal_ex(context.get(), digest, &length) != 1) return {};
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::vector<Job> jobs_of(const LintInput& input, LintReport& report) {
  std::vector<Job> jobs;
  std::vector<std::pair<std::string, bool>> names = {{"tokenizer.json", false}, {"tiktoken.model", false}};
  for (const std::unique_ptr<LintFile>& file : input.files) names.emplace_back(file->name, true);
  for (const auto& [name, needs_hash] : names) {
    const fs::path path = input.folder / name;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) continue;
    std::string expected = from_link(path);
    if (expected.empty()) expected = from_record(input.folder, name);
    if (expected.empty()) {
      if (needs_hash) report.add("hash-unknown", {name, "neither a link into the cache nor a record of its download"});
      continue;
    }
    jobs.push_back({.name = name, .path = path, .bytes = static_cast<std::int64_t>(fs::file_size(path, error)), .expected = expected});
  }
  return jobs;
}

}  // namespace

void check_hashes(const LintInput& input, const LintOptions& options, ThreadPool& pool, LintReport& report) {
  std::vector<Job> jobs = jobs_of(input, report);
  std::int64_t total = 0;
  for (const Job& job : jobs) total += job.bytes;
  std::atomic<std::int64_t> done = 0;
  pool.parallel_for(static_cast<std::int64_t>(jobs.size()), [&](std::int64_t item, int thread) {
    Job& job = jobs[static_cast<std::size_t>(item)];
    job.found = sha256(job, [&](std::int64_t bytes) {
      done += bytes;
      if (thread == 0 && options.progress) options.progress(done, total);
    });
  });
  for (const Job& job : jobs) {
    if (job.found != job.expected)
      report.add("hash-mismatch", {job.name, job.found.empty() ? "the file cannot be read to its end"
                                                               : fmt::format("expected SHA-256 {}, found {}", job.expected, job.found)});
    report.read_bytes += job.bytes;
  }
}

}  // namespace reckoner::lint
