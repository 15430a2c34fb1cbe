#include "diagnose/trace/weight_index.h"

#include <algorithm>
#include <cmath>

#include "quant/format.h"
#include "quant/resolve.h"

namespace reckoner::trace {
namespace {

// How the block scales of a format are stored.
struct ScaleKind {
  DType dtype;
  std::int64_t block_cols;
};
std::optional<ScaleKind> scale_kind(const Weight& w) {
  switch (w.format) {
    case QuantFormat::nvfp4:
      return ScaleKind{DType::f8_e4m3, info(w.format).block_cols};
    case QuantFormat::mxfp4:
    case QuantFormat::mxfp8:
      return ScaleKind{DType::f8_e8m0, info(w.format).block_cols};
    case QuantFormat::int4_g32:
      return ScaleKind{DType::bf16, info(w.format).block_cols};
    case QuantFormat::fp8_block:
      return ScaleKind{DType::f32, info(w.format).block_cols};
    case QuantFormat::fp8_channel:
      return ScaleKind{DType::f32, w.cols};
    default:
      return std::nullopt;
  }
}

const std::byte* scale_byte(const Weight& w, const ScaleKind& kind, std::int64_t row, std::int64_t col) {
  return scale_row(w, row) + col / kind.block_cols * size_bytes(kind.dtype);
}

std::string file_name(const CheckpointTensor& entry) { return entry.file->path().filename().string(); }

}  // namespace

WeightIndex::WeightIndex(const Model& model, const ModelWeights& in_use) : model_(model) {
  if (model.family == nullptr) return;
  // The rules name places in weights that could be written.
  auto& here = const_cast<ModelWeights&>(model.weights);
  auto& there = const_cast<ModelWeights&>(in_use);
  for_each_rule(*model.family, model.config, [&](const WeightRule& rule) {
    for_each_place(rule, model.config, [&](WeightPlace place) {
      if (rule.matrix != nullptr) {
        matrices_.emplace(rule.matrix(there, place).data, &rule.matrix(here, place));
      } else {
        const Tensor& vector = rule.vector(there, place);
        if (!vector.empty()) vectors_.emplace(vector.data, published_name(*model.family, rule, place));
      }
    });
  });
}

Weight WeightIndex::on_host(const Weight& weight) const {
  const auto found = matrices_.find(weight.data);
  return found == matrices_.end() ? weight : *found->second;
}

std::string WeightIndex::vector_name(const Tensor& tensor) const {
  const auto found = vectors_.find(tensor.data);
  return found == vectors_.end() ? "" : found->second;
}

std::optional<FilePlace> WeightIndex::vector_place(const std::string& name, std::int64_t element) const {
  const CheckpointTensor* const entry = model_.checkpoint ? model_.checkpoint->find_entry(name) : nullptr;
  if (entry == nullptr) return std::nullopt;
  return FilePlace{entry->name, file_name(*entry), entry->file_offset + element * size_bytes(entry->tensor.dtype)};
}

std::optional<FilePlace> WeightIndex::place_of(const std::byte* byte) const {
  if (!model_.checkpoint) return std::nullopt;
  const std::vector<CheckpointTensor>& tensors = model_.checkpoint->tensors();
  const auto found = std::find_if(tensors.begin(), tensors.end(), [byte](const CheckpointTensor& entry) {
    return byte >= entry.tensor.data && byte < entry.tensor.data + entry.tensor.bytes();
  });
  if (found == tensors.end()) return std::nullopt;
  return FilePlace{found->name, file_name(*found), found->file_offset + (byte - found->tensor.data)};
}

std::optional<FilePlace> WeightIndex::code_place(const Weight& weight, std::int64_t row, std::int64_t col) const {
  const std::int64_t row_bytes = info(weight.format).row_bytes(weight.cols);
  return place_of(weight.data + row * row_bytes + col * row_bytes / weight.cols);
}

std::optional<FilePlace> WeightIndex::scale_place(const Weight& weight, std::int64_t row, std::int64_t col) const {
  const std::optional<ScaleKind> kind = scale_kind(weight);
  if (!kind) return std::nullopt;
  const std::byte* const scale = scale_byte(weight, *kind, row, col);
  if (std::optional<FilePlace> place = place_of(scale)) return place;
  // Scales that were converted lie in memory of our own; the published ones are as many, in the same order.
  const std::int64_t element = (scale - weight.scales) / size_bytes(kind->dtype);
  for (const char* suffix : {".weight_scale_inv", ".weight_scale"}) {
    const std::string name = std::string(weight.name) + suffix;
    const Tensor* const tensor = model_.checkpoint ? model_.checkpoint->find(name) : nullptr;
    if (tensor != nullptr) return vector_place(name, tensor->shape.elements() == 1 ? 0 : element);
  }
  return std::nullopt;
}

float scale_of(const Weight& weight, std::int64_t row, std::int64_t col) {
  const std::optional<ScaleKind> kind = scale_kind(weight);
  if (!kind || weight.scales == nullptr) return 1;
  const std::byte* const at = scale_byte(weight, *kind, row, col);
  return element_as_f32({.data = const_cast<std::byte*>(at), .dtype = kind->dtype, .shape = {1}}, 0);
}

std::optional<BadElement> find_bad_element(const Weight& weight, std::int64_t first_row, std::int64_t rows) {
  std::vector<float> values(static_cast<std::size_t>(weight.cols));
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    info(weight.format).dequantise(weight, row, 0, weight.cols, values.data());
    const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
    if (bad == values.end()) continue;
    const std::int64_t col = bad - values.begin();
    const float scale = scale_of(weight, row, col);
    return BadElement{.row = row, .col = col, .value = *bad, .by_scale = !std::isfinite(scale), .scale = scale};
  }
  return std::nullopt;
}

}  // namespace reckoner::trace
