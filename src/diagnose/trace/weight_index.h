// WeightIndex: from the bytes that an op reads to the checkpoint: which tensor, which file, where in it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "diagnose/trace/capture.h"
#include "model/loader.h"

namespace reckoner::trace {

// Bytes of a checkpoint.
struct FilePlace {
  std::string tensor;
  std::string file;              // its name in the model's folder
  std::int64_t file_offset = 0;  // of the element, from the start of the file
  bool operator==(const FilePlace&) const = default;
};

class WeightIndex {
 public:
  // `in_use`: the model's weights as steps read them, perhaps on a device. Both must outlive this.
  WeightIndex(const Model& model, const ModelWeights& in_use);

  // The same weight in the host's memory.
  Weight on_host(const Weight& weight) const;
  // The published name of a vector (a norm, a bias); empty: it is none of the model's.
  std::string vector_name(const Tensor& tensor) const;
  // The place of an element of a published vector.
  std::optional<FilePlace> vector_place(const std::string& name, std::int64_t element) const;
  // Places of the code of an element of a host weight, and of its block's scale; nothing where the checkpoint does not hold it.
  std::optional<FilePlace> code_place(const Weight& weight, std::int64_t row, std::int64_t col) const;
  std::optional<FilePlace> scale_place(const Weight& weight, std::int64_t row, std::int64_t col) const;

 private:
  std::optional<FilePlace> place_of(const std::byte* byte) const;

  const Model& model_;
  std::map<const std::byte*, const Weight*> matrices_;
  std::map<const std::byte*, std::string> vectors_;
};

// The element of a weight that is not finite and why.
struct BadElement {
  std::int64_t row = 0;
  std::int64_t col = 0;
  float value = 0;
  bool by_scale = false;  // its block's scale is not finite; else its own code
  float scale = 0;        // of its block, 1 without blocks
};
std::optional<BadElement> find_bad_element(const Weight& weight, std::int64_t first_row, std::int64_t rows);

// The block scale of an element as a number; 1 where the format has none.
float scale_of(const Weight& weight, std::int64_t row, std::int64_t col);

}  // namespace reckoner::trace
