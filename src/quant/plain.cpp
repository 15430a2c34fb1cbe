#include "quant/plain.h"

#include <fmt/format.h>

#include <cstring>

#include "quant/resolve.h"
#include "tensor/dtype.h"

namespace reckoner {
namespace {

template <DType dtype>
std::int64_t row_bytes(std::int64_t cols) {
  return cols * (dtype == DType::f32 ? 4 : 2);
}

std::int64_t no_scales(std::int64_t) { return 0; }

template <DType dtype>
void dequantise(const Weight& w, std::int64_t row, std::int64_t first, std::int64_t count, float* out) {
  const std::byte* at = w.data + row * row_bytes<dtype>(w.cols) + row_bytes<dtype>(first);
  for (std::int64_t i = 0; i < count; ++i, at += row_bytes<dtype>(1)) {
    if constexpr (dtype == DType::f32) {
      std::memcpy(out + i, at, 4);
    } else {
      std::uint16_t bits = 0;
      std::memcpy(&bits, at, 2);
      out[i] = dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
    }
    out[i] *= w.scale;
  }
}

template <DType dtype, QuantFormat format>
Result<std::optional<Weight>> resolve(const WeightQuery& query) {
  const Tensor* tensor = find_part(query, ".weight");
  if (tensor == nullptr || tensor->dtype != dtype) return std::optional<Weight>();
  const Shape shape{query.rows, query.cols};
  if (tensor->shape != shape) {
    return part_error(query, ".weight",
                      fmt::format("expected shape {} by config.json, found {}", shape.to_string(), tensor->shape.to_string()));
  }
  return std::optional(Weight{.format = format, .rows = query.rows, .cols = query.cols, .data = tensor->data, .name = query.module});
}

template <DType dtype>
std::vector<PackedTensor> pack(std::span<const float> values, std::int64_t rows, std::int64_t cols, const PackOptions&) {
  PackedTensor data = make_part(".weight", dtype, {rows, cols});
  std::byte* at = data.bytes.data();
  for (const float value : values) {
    if constexpr (dtype == DType::f32) {
      std::memcpy(at, &value, 4);
    } else {
      const std::uint16_t half = dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
      std::memcpy(at, &half, 2);
    }
    at += row_bytes<dtype>(1);
  }
  return {std::move(data)};
}

template <DType dtype, QuantFormat format>
constexpr FormatInfo plain(std::string_view name) {
  return {.format = format,
          .name = name,
          .row_bytes = row_bytes<dtype>,
          .scale_row_bytes = no_scales,
          .dequantise = dequantise<dtype>,
          .resolve = resolve<dtype, format>,
          .find_bad_scale = nullptr,
          .pack = pack<dtype>};
}

}  // namespace

const std::array<FormatInfo, 3> kPlainFormats = {plain<DType::f32, QuantFormat::f32>("F32"), plain<DType::f16, QuantFormat::f16>("F16"),
                                                 plain<DType::bf16, QuantFormat::bf16>("BF16")};

}  // namespace reckoner
