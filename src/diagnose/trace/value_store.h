// ValueStore: values of a run by name, in the order in which they were first computed: what --save writes and --against compares.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"
#include "tensor/tensor.h"

namespace reckoner::trace {

struct StoredValue {
  std::string name;
  std::int64_t row_elements = 1;
  std::vector<float> values;  // [rows, row_elements], steps one after the other

  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / row_elements; }
};

class ValueStore {
 public:
  // Rows of floats or i32, in the host's memory: the first axis is the rows'.
  void add(const std::string& name, const Tensor& rows);
  const std::vector<StoredValue>& values() const { return values_; }
  // nullptr: there is none of that name.
  const StoredValue* find(std::string_view name) const;

  // `input_ids` is written as well.
  Status save(const std::filesystem::path& path, const std::vector<std::int32_t>& input_ids, const SafetensorsMetadata& metadata) const;

 private:
  std::vector<StoredValue> values_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace reckoner::trace
