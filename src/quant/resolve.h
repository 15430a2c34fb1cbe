// What the formats share when they look for their tensors and make them.
#pragma once

#include <cstring>
#include <initializer_list>

#include "quant/format.h"

namespace reckoner {

// The tensor `module` + suffix, or nullptr.
const Tensor* find_part(const WeightQuery& query, std::string_view suffix);

// That tensor, which a weight in `format` needs: an error unless it is there with one of these dtypes and one of these shapes.
Result<const Tensor*> need_part(const WeightQuery& query, std::string_view suffix, std::string_view format,
                                std::initializer_list<DType> dtypes, std::initializer_list<Shape> shapes);

// An error about one of the module's tensors.
Error part_error(const WeightQuery& query, std::string_view suffix, const std::string& what);

// One element of a tensor of floats (F32, BF16, F16, E4M3 or E8M0), wherever it lies.
float element_as_f32(const Tensor& tensor, std::int64_t index);

// The only element of a tensor-wide scale: finite and above zero, or an error.
Result<float> need_scale(const WeightQuery& query, std::string_view suffix, std::string_view format, std::initializer_list<DType> dtypes);

// All elements as F32 in memory of our own.
const std::byte* as_f32(const WeightQuery& query, const Tensor& tensor);

// The largest magnitude; infinity or NaN if there is one.
float largest_magnitude(std::span<const float> values);

// Filled with zeros.
PackedTensor make_part(std::string_view suffix, DType dtype, const Shape& shape);

// What a scale is that is not finite and above zero; nothing if it is.
std::optional<std::string> scale_fault(float scale);

}  // namespace reckoner
