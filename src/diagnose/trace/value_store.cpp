#include "diagnose/trace/value_store.h"

#include <algorithm>

namespace reckoner::trace {

void ValueStore::add(const std::string& name, const Tensor& rows) {
  if (rows.empty() || rows.shape.elements() == 0) return;
  const auto [known, added] = by_name_.emplace(name, values_.size());
  const std::int64_t count = rows.shape.elements();
  if (added) values_.push_back({.name = name, .row_elements = rows.shape.rank() < 2 ? 1 : count / rows.dim(0), .values = {}});
  std::vector<float>& values = values_[known->second].values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(rows.dtype == DType::f32 ? rows.f32()[i] : static_cast<float>(rows.i32()[i]));
}

const StoredValue* ValueStore::find(std::string_view name) const {
  const auto known = by_name_.find(name);
  return known == by_name_.end() ? nullptr : &values_[known->second];
}

Status ValueStore::save(const std::filesystem::path& path, const std::vector<std::int32_t>& input_ids,
                        const SafetensorsMetadata& metadata) const {
  std::vector<NamedTensor> tensors;
  const auto bytes = [](const auto* data) { return reinterpret_cast<std::byte*>(const_cast<std::remove_cvref_t<decltype(*data)>*>(data)); };
  tensors.push_back({"input_ids", {.data = bytes(input_ids.data()), .dtype = DType::i32, .shape = {std::ssize(input_ids)}}});
  for (const StoredValue& value : values_)
    tensors.push_back({value.name, {.data = bytes(value.values.data()), .dtype = DType::f32, .shape = {value.rows(), value.row_elements}}});
  return write_safetensors(path, tensors, metadata);
}

}  // namespace reckoner::trace
