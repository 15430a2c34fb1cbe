// What the tests of this folder share: the pocket model, small vocabularies, folders that break.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace reckoner {

inline constexpr const char* kPocketFolder = "models/pocket";

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The value of a result that must be one.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(result).value();
}

inline Tokenizer pocket() { return must(Tokenizer::load(kPocketFolder)); }

// The pocket model's vocabulary with another template.
inline Result<Tokenizer> pocket_with_template(std::string_view chat_template) {
  return Tokenizer::from_memory(read_file(std::filesystem::path(kPocketFolder) / "tokenizer.json"), chat_template);
}

// A folder of its own for one test, removed with it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() / ("text_test_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    if (!path_.empty()) std::filesystem::remove_all(path_);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const char* name, std::string_view text) const { std::ofstream(path_ / name, std::ios::binary) << text; }

 private:
  std::filesystem::path path_;
};

// How a byte-level vocabulary spells these bytes (the alphabet of GPT-2), with the quote and backslash as JSON wants them.
inline std::string byte_level_spelling(std::string_view bytes) {
  std::string spelled;
  for (const char signed_byte : bytes) {
    const unsigned byte = static_cast<unsigned char>(signed_byte);
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    unsigned code = byte;
    if (!printable) code = byte <= 0x20 ? 0x100 + byte : byte <= 0xA0 ? 0x121 + (byte - 0x7F) : 0x143;
    if (code == '"' || code == '\\') spelled += '\\';
    if (code < 0x80) {
      spelled += static_cast<char>(code);
    } else {
      spelled += static_cast<char>(0xC0 | (code >> 6));
      spelled += static_cast<char>(0x80 | (code & 0x3F));
    }
  }
  return spelled;
}

// A byte-level vocabulary of exactly these tokens, ids in their order, then the special token <|end|>.
inline Tokenizer byte_level_tokenizer(const std::vector<std::string>& tokens) {
  std::string vocab;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    vocab += (id == 0 ? "\"" : ",\"") + byte_level_spelling(tokens[id]) + "\":" + std::to_string(id);
  }
  const std::string special = std::to_string(tokens.size());
  return must(Tokenizer::from_memory(
      R"({"version":"1.0","truncation":null,"padding":null,"normalizer":null,"post_processor":null,)"
      R"("added_tokens":[{"id":)" +
      special + R"(,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],)" +
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},)"
      R"("decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},)"
      R"("model":{"type":"BPE","vocab":{)" +
      vocab + R"(},"merges":[]}})"));
}

}  // namespace reckoner
