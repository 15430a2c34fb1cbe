#include "quant/int4.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quant/e2m1.h"
#include "quant/resolve.h"

namespace reckoner {
namespace {

constexpr std::string_view kName = "INT4 (groups of 32)";
constexpr int kZero = 8;  // the code of 0

std::int64_t row_bytes(std::int64_t cols) { return cols / 2; }
std::int64_t scale_row_bytes(std::int64_t cols) { return cols / kInt4Group * size_bytes(DType::bf16); }

float group_scale(const std::byte* scales, std::int64_t group) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, scales + group * size_bytes(DType::bf16), sizeof(bits));
  return bf16_to_f32(bits);
}

void dequantise(const Weight& w, std::int64_t row, std::int64_t first, std::int64_t count, float* out) {
  const std::byte* codes = w.data + row * row_bytes(w.cols);
  const std::byte* scales = scale_row(w, row);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t col = first + i;
    out[i] = static_cast<float>(static_cast<int>(nibble(codes, col)) - kZero) * group_scale(scales, col / kInt4Group) * w.scale;
  }
}

// `weight_shape` must say what config.json says.
Status check_shape(const WeightQuery& query) {
  const Tensor* shape = find_part(query, ".weight_shape");
  if (shape == nullptr) return {};
  TRY(need_part(query, ".weight_shape", kName, {DType::i64, DType::i32}, {Shape{2}}));
  std::int64_t said[2] = {};
  for (int i = 0; i < 2; ++i) {
    std::int32_t narrow = 0;
    if (shape->dtype == DType::i64) std::memcpy(&said[i], shape->data + 8 * i, 8);
    if (shape->dtype == DType::i32) std::memcpy(&narrow, shape->data + 4 * i, 4);
    if (shape->dtype == DType::i32) said[i] = narrow;
  }
  if (said[0] == query.rows && said[1] == query.cols) return {};
  return part_error(query, ".weight_shape", fmt::format("expected {} by {}, found {} by {}", query.rows, query.cols, said[0], said[1]));
}

Result<std::optional<Weight>> resolve(const WeightQuery& query) {
  const Tensor* data = find_part(query, ".weight_packed");
  if (data == nullptr || data->dtype != DType::i32) return std::optional<Weight>();
  if (query.cols % kInt4Group != 0) {
    return part_error(query, ".weight_packed",
                      fmt::format("{} needs a multiple of {} columns, config.json says {}", kName, kInt4Group, query.cols));
  }
  static_cast<void>(TRY(need_part(query, ".weight_packed", kName, {DType::i32}, {{query.rows, query.cols / 8}})));
  const Tensor* scales = TRY(need_part(query, ".weight_scale", kName, {DType::bf16}, {{query.rows, query.cols / kInt4Group}}));
  TRY(check_shape(query));
  return std::optional(Weight{.format = QuantFormat::int4_g32,
                              .rows = query.rows,
                              .cols = query.cols,
                              .data = data->data,
                              .scales = scales->data,
                              .name = query.module});
}

std::vector<PackedTensor> pack(std::span<const float> values, std::int64_t rows, std::int64_t cols, const PackOptions&) {
  PackedTensor data = make_part(".weight_packed", DType::i32, {rows, cols / 8});
  PackedTensor scales = make_part(".weight_scale", DType::bf16, {rows, cols / kInt4Group});
  PackedTensor shape = make_part(".weight_shape", DType::i64, {2});
  std::memcpy(shape.bytes.data(), &rows, sizeof(rows));
  std::memcpy(shape.bytes.data() + sizeof(rows), &cols, sizeof(cols));
  for (std::int64_t block = 0; block < rows * cols / kInt4Group; ++block) {
    const std::span<const float> group = values.subspan(static_cast<std::size_t>(block * kInt4Group), kInt4Group);
    const float largest = largest_magnitude(group);
    const std::uint16_t bits = f32_to_bf16(largest == 0 ? 1.0f : std::max(largest / 7.0f, 0x1p-126f));
    std::memcpy(scales.bytes.data() + block * size_bytes(DType::bf16), &bits, sizeof(bits));
    for (std::int64_t i = 0; i < kInt4Group; ++i) {
      const float steps = std::nearbyint(group[static_cast<std::size_t>(i)] / bf16_to_f32(bits));
      set_nibble(data.bytes.data(), block * kInt4Group + i,
                 static_cast<unsigned>(static_cast<int>(std::clamp(steps, -7.0f, 7.0f)) + kZero));
    }
  }
  return {std::move(data), std::move(scales), std::move(shape)};
}

// A negative scale would be odd and yet right; a zero one under codes that are not zero is an export that went wrong.
std::optional<BadScale> find_bad_scale(const Weight& w, std::int64_t first_row, std::int64_t rows) {
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    const std::byte* scales = scale_row(w, row);
    for (std::int64_t block = 0; block < w.cols / kInt4Group; ++block) {
      const float scale = group_scale(scales, block);
      if (std::isfinite(scale) && scale != 0) continue;
      const std::byte* codes = w.data + row * row_bytes(w.cols) + block * kInt4Group / 2;
      const bool all_zero = std::all_of(codes, codes + kInt4Group / 2, [](std::byte pair) { return pair == std::byte{0x88}; });
      if (scale == 0 && all_zero) continue;
      return BadScale{row, block, *scale_fault(scale)};
    }
  }
  return std::nullopt;
}

}  // namespace

const FormatInfo kInt4Format = {.format = QuantFormat::int4_g32,
                                .name = "INT4",
                                .block_cols = kInt4Group,
                                .cols_multiple = kInt4Group,
                                .row_bytes = row_bytes,
                                .scale_row_bytes = scale_row_bytes,
                                .dequantise = dequantise,
                                .resolve = resolve,
                                .find_bad_scale = find_bad_scale,
                                .pack = pack};

}  // namespace reckoner
