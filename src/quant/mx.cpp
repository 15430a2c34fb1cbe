#include "quant/mx.h"

#include <fmt/format.h>

#include "quant/e2m1.h"
#include "quant/resolve.h"

namespace reckoner {
namespace {

// What MXFP4 and MXFP8 differ in.
struct Fp4 {
  static constexpr QuantFormat kFormat = QuantFormat::mxfp4;
  static constexpr std::string_view kName = "MXFP4";
  static constexpr float kLargest = 6;
  static constexpr DType kDType = DType::u8;
  static std::int64_t row_bytes(std::int64_t cols) { return cols / 2; }
  static float value(const std::byte* row, std::int64_t col) { return kE2M1[nibble(row, col)]; }
  static void pack_block(const float* values, float scale, std::byte* out) { pack_e2m1<kMxBlock>(values, scale, out); }
};
struct Fp8 {
  static constexpr QuantFormat kFormat = QuantFormat::mxfp8;
  static constexpr std::string_view kName = "MXFP8";
  static constexpr float kLargest = 448;
  static constexpr DType kDType = DType::f8_e4m3;
  static std::int64_t row_bytes(std::int64_t cols) { return cols; }
  static float value(const std::byte* row, std::int64_t col) { return e4m3_to_f32(static_cast<std::uint8_t>(row[col])); }
  static void pack_block(const float* values, float scale, std::byte* out) {
    for (std::int64_t i = 0; i < kMxBlock; ++i) out[i] = static_cast<std::byte>(f32_to_e4m3(values[i] / scale));
  }
};

std::int64_t scale_row_bytes(std::int64_t cols) { return cols / kMxBlock; }

template <class Element>
void dequantise(const Weight& w, std::int64_t row, std::int64_t first, std::int64_t count, float* out) {
  const std::byte* codes = w.data + row * Element::row_bytes(w.cols);
  const std::byte* scales = scale_row(w, row);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t col = first + i;
    out[i] = Element::value(codes, col) * e8m0_to_f32(static_cast<std::uint8_t>(scales[col / kMxBlock])) * w.scale;
  }
}

bool has_e8m0_scales(const WeightQuery& query) {
  const Tensor* scales = find_part(query, ".weight_scale");
  return scales != nullptr && (scales->dtype == DType::u8 || scales->dtype == DType::f8_e8m0);
}

template <class Element>
Result<std::optional<Weight>> resolve(const WeightQuery& query) {
  std::string_view suffix = ".weight";
  const Tensor* data = find_part(query, suffix);
  if (data == nullptr && Element::kFormat == QuantFormat::mxfp4) data = find_part(query, suffix = ".weight_packed");
  if (data == nullptr || data->dtype != Element::kDType || !has_e8m0_scales(query)) return std::optional<Weight>();
  if (query.cols % kMxBlock != 0) {
    return part_error(query, suffix,
                      fmt::format("{} needs a multiple of {} columns, config.json says {}", Element::kName, kMxBlock, query.cols));
  }
  static_cast<void>(TRY(need_part(query, suffix, Element::kName, {Element::kDType}, {{query.rows, Element::row_bytes(query.cols)}})));
  const Tensor* scales =
      TRY(need_part(query, ".weight_scale", Element::kName, {DType::u8, DType::f8_e8m0}, {{query.rows, query.cols / kMxBlock}}));
  find_part(query, ".input_scale");
  return std::optional(Weight{.format = Element::kFormat,
                              .rows = query.rows,
                              .cols = query.cols,
                              .data = data->data,
                              .scales = scales->data,
                              .name = query.module});
}

template <class Element>
std::vector<PackedTensor> pack(std::span<const float> values, std::int64_t rows, std::int64_t cols, const PackOptions&) {
  PackedTensor data = make_part(".weight", Element::kDType, {rows, Element::row_bytes(cols)});
  PackedTensor scales = make_part(".weight_scale", DType::u8, {rows, cols / kMxBlock});
  for (std::int64_t block = 0; block < rows * cols / kMxBlock; ++block) {
    const std::span<const float> group = values.subspan(static_cast<std::size_t>(block * kMxBlock), kMxBlock);
    const float largest = largest_magnitude(group);
    const std::uint8_t scale = largest == 0 ? 127 : f32_to_e8m0_up(largest / Element::kLargest);
    scales.bytes[static_cast<std::size_t>(block)] = static_cast<std::byte>(scale);
    Element::pack_block(group.data(), e8m0_to_f32(scale), data.bytes.data() + Element::row_bytes(block * kMxBlock));
  }
  return {std::move(data), std::move(scales)};
}

std::optional<BadScale> find_bad_scale(const Weight& w, std::int64_t first_row, std::int64_t rows) {
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    const std::byte* scales = scale_row(w, row);
    for (std::int64_t block = 0; block < w.cols / kMxBlock; ++block) {
      if (scales[block] == std::byte{255}) return BadScale{row, block, "NaN"};
    }
  }
  return std::nullopt;
}

template <class Element>
constexpr FormatInfo mx_format() {
  return {.format = Element::kFormat,
          .name = Element::kName,
          .block_cols = kMxBlock,
          .cols_multiple = kMxBlock,
          .row_bytes = Element::row_bytes,
          .scale_row_bytes = scale_row_bytes,
          .dequantise = dequantise<Element>,
          .resolve = resolve<Element>,
          .find_bad_scale = find_bad_scale,
          .pack = pack<Element>};
}

}  // namespace

const FormatInfo kMxfp4Format = mx_format<Fp4>();
const FormatInfo kMxfp8Format = mx_format<Fp8>();

}  // namespace reckoner
