// Checkpoint: all safetensors files of a model folder as one set of named tensors, checked against the index before use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/safetensors.h"
#include "tensor/tensor_source.h"

namespace reckoner {

struct CheckpointTensor {
  std::string name;
  Tensor tensor;                          // view of the mapped file: read-only, not necessarily aligned
  const SafetensorsFile* file = nullptr;  // owned by the Checkpoint
  std::int64_t file_offset = 0;           // of its first byte in that file
};

// The tensors stay valid as long as the Checkpoint lives; it may be moved.
class Checkpoint : public TensorSource {
 public:
  // Opens `model.safetensors.index.json` with its shards, or a single `model.safetensors`. Reads headers only.
  // Errors: neither is there (says what is), a shard is missing or damaged, a tensor of the index is not in the shard named, a tensor
  // is in two shards. All shards' problems are reported together.
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  // Sorted by name.
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  std::vector<std::string_view> names() const;
  // Null when there is no such tensor.
  const Tensor* find(std::string_view name) const override;
  const CheckpointTensor* find_entry(std::string_view name) const;
  // "model-00002-of-00003.safetensors: tensor 'x'", for messages; with the folder when no file has that tensor.
  std::string locate(std::string_view name) const override;

  const std::vector<SafetensorsFile>& files() const { return files_; }
  // Bytes of all tensors.
  std::int64_t total_bytes() const { return total_bytes_; }
  // Oddities that do not prevent loading: tensors that the index leaves out, a total_size that is off, safetensors files that the index
  // does not name, leftovers of downloads.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  Checkpoint() = default;

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<std::string> notes_;
  std::int64_t total_bytes_ = 0;
};

}  // namespace reckoner
