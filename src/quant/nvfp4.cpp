#include "quant/nvfp4.h"

#include <fmt/format.h>

#include <algorithm>

#include "quant/e2m1.h"
#include "quant/resolve.h"

namespace reckoner {
namespace {

constexpr std::string_view kName = "NVFP4";

std::int64_t row_bytes(std::int64_t cols) { return cols / 2; }
std::int64_t scale_row_bytes(std::int64_t cols) { return cols / kNvfp4Block; }

void dequantise(const Weight& w, std::int64_t row, std::int64_t first, std::int64_t count, float* out) {
  const std::byte* codes = w.data + row * row_bytes(w.cols);
  const std::byte* scales = scale_row(w, row);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t col = first + i;
    out[i] = kE2M1[nibble(codes, col)] * e4m3_to_f32(static_cast<std::uint8_t>(scales[col / kNvfp4Block])) * w.scale;
  }
}

Result<std::optional<Weight>> resolve(const WeightQuery& query) {
  const Tensor* modelopt = find_part(query, ".weight");
  const Tensor* packed = find_part(query, ".weight_packed");
  const bool is_modelopt = modelopt != nullptr && modelopt->dtype == DType::u8;
  if (!is_modelopt && (packed == nullptr || packed->dtype != DType::u8)) return std::optional<Weight>();
  const std::string_view suffix = is_modelopt ? ".weight" : ".weight_packed";
  if (query.cols % kNvfp4Block != 0) {
    return part_error(query, suffix, fmt::format("NVFP4 needs a multiple of {} columns, config.json says {}", kNvfp4Block, query.cols));
  }
  const Tensor* data = TRY(need_part(query, suffix, kName, {DType::u8}, {{query.rows, query.cols / 2}}));
  const Tensor* scales = TRY(need_part(query, ".weight_scale", kName, {DType::f8_e4m3}, {{query.rows, query.cols / kNvfp4Block}}));
  const float scale = TRY(need_scale(query, is_modelopt ? ".weight_scale_2" : ".weight_global_scale", kName, {DType::f32}));
  // They belong to the format; needed only where activations are quantised to FP4 too.
  find_part(query, is_modelopt ? ".input_scale" : ".input_global_scale");
  return std::optional(Weight{.format = QuantFormat::nvfp4,
                              .rows = query.rows,
                              .cols = query.cols,
                              .data = data->data,
                              .scales = scales->data,
                              .scale = is_modelopt ? scale : 1.0f / scale,
                              .name = query.module});
}

std::vector<PackedTensor> pack(std::span<const float> values, std::int64_t rows, std::int64_t cols, const PackOptions& options) {
  const float largest = options.largest > 0 ? options.largest : largest_magnitude(values);
  const float scale = largest > 0 ? largest / (6.0f * 448.0f) : 1.0f;
  PackedTensor data = make_part(".weight", DType::u8, {rows, cols / 2});
  PackedTensor scales = make_part(".weight_scale", DType::f8_e4m3, {rows, cols / kNvfp4Block});
  PackedTensor tensor_scale = make_part(".weight_scale_2", DType::f32, {});
  std::memcpy(tensor_scale.bytes.data(), &scale, sizeof(scale));
  for (std::int64_t block = 0; block < rows * cols / kNvfp4Block; ++block) {
    const std::span<const float> group = values.subspan(static_cast<std::size_t>(block * kNvfp4Block), kNvfp4Block);
    const float block_largest = largest_magnitude(group);
    const std::uint8_t block_scale =
        block_largest == 0 ? f32_to_e4m3(1.0f) : f32_to_e4m3(std::clamp(block_largest / 6.0f / scale, 0x1p-9f, 448.0f));
    scales.bytes[static_cast<std::size_t>(block)] = static_cast<std::byte>(block_scale);
    pack_e2m1<kNvfp4Block>(group.data(), e4m3_to_f32(block_scale) * scale, data.bytes.data() + block * kNvfp4Block / 2);
  }
  return {std::move(data), std::move(scales), std::move(tensor_scale)};
}

std::optional<BadScale> find_bad_scale(const Weight& w, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t blocks = w.cols / kNvfp4Block;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    const std::byte* scales = scale_row(w, row);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const auto bits = static_cast<unsigned>(scales[block]);
      if (bits - 1 < 0x7e) continue;  // 0x01..0x7e: positive and finite
      if ((bits & 0x7f) == 0x7f) return BadScale{row, block, "NaN"};
      if (bits > 0x80) return BadScale{row, block, fmt::format("{}", e4m3_to_f32(static_cast<std::uint8_t>(bits)))};
      const std::byte* codes = w.data + row * row_bytes(w.cols) + block * kNvfp4Block / 2;
      const bool all_zero =
          std::all_of(codes, codes + kNvfp4Block / 2, [](std::byte pair) { return (pair & std::byte{0x77}) == std::byte{0}; });
      if (!all_zero) return BadScale{row, block, "0"};
    }
  }
  return std::nullopt;
}

}  // namespace

const FormatInfo kNvfp4Format = {.format = QuantFormat::nvfp4,
                                 .name = kName,
                                 .block_cols = kNvfp4Block,
                                 .cols_multiple = kNvfp4Block,
                                 .row_bytes = row_bytes,
                                 .scale_row_bytes = scale_row_bytes,
                                 .dequantise = dequantise,
                                 .resolve = resolve,
                                 .find_bad_scale = find_bad_scale,
                                 .pack = pack};

}  // namespace reckoner
