// ModelCopy: a small, whole model in a folder of its own, to be damaged; and the ways to damage it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace reckoner {

enum class Base : std::uint8_t {
  bf16,     // tests/golden/glm_moe_dsa: model.safetensors
  nvfp4,    // the same with its routed experts in NVFP4
  fp8,      // the same with its routed experts in FP8 by block
  sharded,  // the same in three shards with an index
  pocket,   // models/pocket: three shards, and an MTP layer
};

inline constexpr const char* kFile = "model.safetensors";
inline constexpr const char* kIndex = "model.safetensors.index.json";
inline constexpr const char* kShard1 = "model-00001-of-00003.safetensors";
inline constexpr const char* kShard2 = "model-00002-of-00003.safetensors";
inline constexpr const char* kShard3 = "model-00003-of-00003.safetensors";

// Every function throws when it does not find what it is to change: a case must not pass because its damage missed.
class ModelCopy {
 public:
  explicit ModelCopy(Base base);
  ~ModelCopy() { std::filesystem::remove_all(path_); }
  ModelCopy(const ModelCopy&) = delete;
  ModelCopy& operator=(const ModelCopy&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // A message with this folder's path as "DIR".
  std::string shorten(std::string message) const;
  // All that a file system shows of the folder: names, sizes, times of the last change.
  std::vector<std::string> listing() const;

  // Whole files.
  std::string read(std::string_view file) const;
  void write(std::string_view file, std::string_view content) const;
  void remove(std::string_view file) const;
  void remove_all() const;
  void move(std::string_view from, std::string_view to) const;
  void resize(std::string_view file, std::int64_t change_bytes) const;
  // `from`, which the file has exactly once, becomes `to`.
  void replace(std::string_view file, std::string_view from, std::string_view to) const;

  // The JSON header of a safetensors file, its length corrected; the data stays as it is.
  void set_header(std::string_view file, std::string_view header) const;
  void replace_in_header(std::string_view file, std::string_view from, std::string_view to) const;
  // Only the length in front of the header.
  void set_header_length(std::string_view file, std::uint64_t length) const;

  // Tensors of a safetensors file, which is written anew and valid.
  void drop_tensor(std::string_view file, std::string_view name) const;
  void rename_tensor(std::string_view file, std::string_view name, std::string_view new_name) const;
  void move_tensor(std::string_view from, std::string_view to, std::string_view name) const;
  // A new tensor, or another in the place of the old one. All its bytes are zero.
  void put_tensor(std::string_view file, std::string_view name, DType dtype, const Shape& shape) const;
  // A copy of a tensor in another file, which need not be there yet.
  void copy_tensor(std::string_view from, std::string_view to, std::string_view name) const;
  // Bytes of a tensor, from its byte `offset` on.
  void set_bytes(std::string_view file, std::string_view tensor, std::int64_t offset, std::initializer_list<int> bytes) const;
  void set_f32(std::string_view file, std::string_view tensor, std::int64_t element, float value) const;

 private:
  std::filesystem::path path_;
};

}  // namespace reckoner
