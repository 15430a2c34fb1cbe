#include "quant/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace reckoner {
namespace {

std::string alternatives(std::initializer_list<DType> dtypes) {
  std::string text;
  for (const DType dtype : dtypes) text += fmt::format("{}{}", text.empty() ? "" : " or ", name(dtype));
  return text;
}

}  // namespace

const Tensor* find_part(const WeightQuery& query, std::string_view suffix) { return query.source.find(query.module + std::string(suffix)); }

Error part_error(const WeightQuery& query, std::string_view suffix, const std::string& what) {
  return {fmt::format("{}: {}", query.source.locate(query.module + std::string(suffix)), what),
          "config.json and the weights are of different models, or the file is damaged: fetch both again"};
}

Result<const Tensor*> need_part(const WeightQuery& query, std::string_view suffix, std::string_view format,
                                std::initializer_list<DType> dtypes, std::initializer_list<Shape> shapes) {
  const Tensor* tensor = find_part(query, suffix);
  if (tensor == nullptr) {
    return Error{fmt::format("{}: missing; a weight in {} needs it", query.source.locate(query.module + std::string(suffix)), format),
                 "fetch the checkpoint again, or export it again"};
  }
  if (std::find(dtypes.begin(), dtypes.end(), tensor->dtype) != dtypes.end() &&
      std::find(shapes.begin(), shapes.end(), tensor->shape) != shapes.end()) {
    return tensor;
  }
  return part_error(query, suffix,
                    fmt::format("expected {} {}, found {} {}", alternatives(dtypes), shapes.begin()->to_string(), name(tensor->dtype),
                                tensor->shape.to_string()));
}

float element_as_f32(const Tensor& tensor, std::int64_t index) {
  const std::byte* at = tensor.data + index * size_bytes(tensor.dtype);
  std::uint16_t half = 0;
  float value = 0;
  switch (tensor.dtype) {
    case DType::f32:
      std::memcpy(&value, at, sizeof(value));
      return value;
    case DType::bf16:
      std::memcpy(&half, at, sizeof(half));
      return bf16_to_f32(half);
    case DType::f16:
      std::memcpy(&half, at, sizeof(half));
      return f16_to_f32(half);
    case DType::f8_e4m3:
      return e4m3_to_f32(static_cast<std::uint8_t>(*at));
    case DType::f8_e8m0:
    case DType::u8:
      return e8m0_to_f32(static_cast<std::uint8_t>(*at));
    default:
      CHECK(false, "a scale of another dtype");
      return 0;
  }
}

Result<float> need_scale(const WeightQuery& query, std::string_view suffix, std::string_view format, std::initializer_list<DType> dtypes) {
  const Tensor* tensor = TRY(need_part(query, suffix, format, dtypes, {Shape{}, Shape{1}, Shape{1, 1}}));
  const float scale = element_as_f32(*tensor, 0);
  if (std::isfinite(scale) && scale > 0) return scale;
  return Error{
      fmt::format("{}: expected a finite scale above zero, found {}", query.source.locate(query.module + std::string(suffix)), scale),
      "the export went wrong (an expert without calibration?): export again, or fetch another copy"};
}

const std::byte* as_f32(const WeightQuery& query, const Tensor& tensor) {
  const std::int64_t count = tensor.shape.elements();
  const Buffer& owner = query.owners.emplace_back(count * size_bytes(DType::f32));
  float* values = owner.tensor(DType::f32, {count}).f32();
  for (std::int64_t i = 0; i < count; ++i) values[i] = element_as_f32(tensor, i);
  return owner.data();
}

// The bits of floats without their sign are ordered as their magnitudes. Several maxima side by side, so that the compiler can put them
// into a vector.
float largest_magnitude(std::span<const float> values) {
  constexpr std::size_t kLanes = 16;
  std::int32_t lanes[kLanes] = {};
  std::size_t at = 0;
  for (; at + kLanes <= values.size(); at += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = std::max(lanes[lane], std::bit_cast<std::int32_t>(values[at + lane]) & 0x7fffffff);
  }
  for (; at < values.size(); ++at) lanes[0] = std::max(lanes[0], std::bit_cast<std::int32_t>(values[at]) & 0x7fffffff);
  return std::bit_cast<float>(*std::max_element(lanes, lanes + kLanes));
}

PackedTensor make_part(std::string_view suffix, DType dtype, const Shape& shape) {
  return {suffix, dtype, shape, std::vector<std::byte>(static_cast<std::size_t>(shape.elements() * size_bytes(dtype)))};
}

std::optional<std::string> scale_fault(float scale) {
  if (std::isfinite(scale) && scale > 0) return std::nullopt;
  return std::isnan(scale) ? "NaN" : fmt::format("{}", scale);
}

}  // namespace reckoner
