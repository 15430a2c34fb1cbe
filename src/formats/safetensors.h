// Safetensors files: validated in full before anything is read from them, and written.
//
// A file is: u64 little-endian header length, a JSON header {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...,
// "__metadata__": {string: string}}, then the data region, which the tensors cover without gap or overlap.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "tensor/tensor.h"

namespace reckoner {

// One tensor of a file. `tensor.data` points into the mapped file: read-only (a write faults) and not necessarily aligned.
struct TensorEntry {
  std::string name;
  Tensor tensor;
  std::int64_t file_offset = 0;  // of its first byte, from the start of the file
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsContent {
  std::vector<TensorEntry> tensors;  // in the order of their data
  SafetensorsMetadata metadata;
};

// Validates the bytes of a whole file and describes its tensors, which point into `file`. `where` (the path) starts every message.
// Errors: not a safetensors file (named if known: Git LFS pointer, web page, zero-filled, ...), truncated or padded, bad header JSON,
// unknown dtype, rank above 4, sizes that overflow or disagree with dtype and shape, overlaps, gaps, a name that occurs twice.
Result<SafetensorsContent> parse_safetensors(std::span<const std::byte> file, std::string_view where);

// What a header says, whether or not the data after it is whole.
struct SafetensorsHeader {
  SafetensorsContent content;       // tensors without data; file offsets may lie beyond the file's end
  std::int64_t data_offset = 0;     // where the header ends
  std::int64_t file_bytes = 0;      // of the file as it is
  std::int64_t expected_bytes = 0;  // of a whole file with this header
  Status layout;                    // truncated, padded, gaps, overlaps: what parse_safetensors would refuse
};

// Errors: the header itself cannot be read.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file, std::string_view where);

// One mapped and validated file.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const MappedFile& file() const { return file_; }
  const SafetensorsMetadata& metadata() const { return content_.metadata; }
  // In the order of their data.
  const std::vector<TensorEntry>& tensors() const { return content_.tensors; }
  // Null when the file has no such tensor.
  const TensorEntry* find(std::string_view name) const;

 private:
  SafetensorsFile(std::filesystem::path path, MappedFile file, SafetensorsContent content);

  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsContent content_;
  std::vector<std::uint32_t> by_name_;  // positions in content_.tensors, sorted by name
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// What stands before the data region of a file of these tensors, one after the other (their `data` is not read): length and header, padded
// so that the data region starts at a multiple of 8 bytes.
std::string safetensors_header(std::span<const NamedTensor> tensors, const SafetensorsMetadata& metadata = {});

// Writes the tensors in the order given, under a temporary name that is renamed at the end: a reader never sees half a file.
// Errors: the folder cannot be written, the disk is full, a name occurs twice or is "__metadata__".
Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors, const SafetensorsMetadata& metadata = {});

}  // namespace reckoner
