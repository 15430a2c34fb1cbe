#include "quant/fp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quant/resolve.h"

namespace reckoner {
namespace {

constexpr std::string_view kBlockName = "FP8 (blocks of 128)";
constexpr std::string_view kChannelName = "FP8 (per channel)";
constexpr float kLargestE4M3 = 448;

std::int64_t blocks_of(std::int64_t count) { return (count + kFp8Block - 1) / kFp8Block; }

std::int64_t row_bytes(std::int64_t cols) { return cols; }
std::int64_t block_scale_row_bytes(std::int64_t cols) { return blocks_of(cols) * size_bytes(DType::f32); }
std::int64_t channel_scale_row_bytes(std::int64_t) { return size_bytes(DType::f32); }

float scale_at(const std::byte* scales, std::int64_t index) {
  float scale = 0;
  std::memcpy(&scale, scales + index * size_bytes(DType::f32), sizeof(scale));
  return scale;
}

void dequantise_block(const Weight& w, std::int64_t row, std::int64_t first, std::int64_t count, float* out) {
  const std::byte* codes = w.data + row * w.cols + first;
  const std::byte* scales = scale_row(w, row);
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = e4m3_to_f32(static_cast<std::uint8_t>(codes[i])) * scale_at(scales, (first + i) / kFp8Block) * w.scale;
}

void dequantise_channel(const Weight& w, std::int64_t row, std::int64_t first, std::int64_t count, float* out) {
  const std::byte* codes = w.data + row * w.cols + first;
  const float scale = scale_at(scale_row(w, row), 0) * w.scale;
  for (std::int64_t i = 0; i < count; ++i) out[i] = e4m3_to_f32(static_cast<std::uint8_t>(codes[i])) * scale;
}

bool is_fp8(const WeightQuery& query) {
  const Tensor* data = find_part(query, ".weight");
  return data != nullptr && data->dtype == DType::f8_e4m3;
}

Result<const std::byte*> need_data(const WeightQuery& query, std::string_view format) {
  const Tensor* data = TRY(need_part(query, ".weight", format, {DType::f8_e4m3}, {{query.rows, query.cols}}));
  find_part(query, ".input_scale");  // of static activation scales, which are not used: activations are not quantised
  return data->data;
}

// The name under which block scales are published, if they are there.
std::optional<std::string_view> block_suffix(const WeightQuery& query) {
  if (find_part(query, ".weight_scale_inv") != nullptr) return ".weight_scale_inv";
  const Tensor* scales = find_part(query, ".weight_scale");
  const Shape grid{blocks_of(query.rows), blocks_of(query.cols)};
  // [rows, 1] is one scale a row, also where it could be taken for a grid.
  const bool block = scales != nullptr && scales->shape == grid && scales->shape != Shape{query.rows, 1} && scales->shape.elements() > 1;
  return block ? std::optional<std::string_view>(".weight_scale") : std::nullopt;
}

Result<std::optional<Weight>> resolve_block(const WeightQuery& query) {
  if (!is_fp8(query)) return std::optional<Weight>();
  const std::optional<std::string_view> suffix = block_suffix(query);
  if (!suffix) return std::optional<Weight>();
  const std::byte* data = TRY(need_data(query, kBlockName));
  const Tensor* scales = TRY(need_part(query, *suffix, kBlockName, {DType::f32, DType::bf16, DType::f8_e8m0, DType::u8},
                                       {{blocks_of(query.rows), blocks_of(query.cols)}}));
  return std::optional(Weight{.format = QuantFormat::fp8_block,
                              .rows = query.rows,
                              .cols = query.cols,
                              .data = data,
                              .scales = scales->dtype == DType::f32 ? scales->data : as_f32(query, *scales),
                              .name = query.module});
}

Result<std::optional<Weight>> resolve_channel(const WeightQuery& query) {
  if (!is_fp8(query) || block_suffix(query)) return std::optional<Weight>();
  const Tensor* found = find_part(query, ".weight_scale");
  if (found == nullptr) {
    return Error{fmt::format("{}: F8_E4M3 without scales; expected weight_scale_inv or weight_scale beside it",
                             query.source.locate(query.module + ".weight")),
                 "fetch the checkpoint again; a shard may not have been downloaded"};
  }
  const std::byte* data = TRY(need_data(query, kChannelName));
  Weight weight{.format = QuantFormat::fp8_channel, .rows = query.rows, .cols = query.cols, .data = data, .name = query.module};
  if (found->shape.elements() == 1 && query.rows > 1) {
    const float scale = TRY(need_scale(query, ".weight_scale", "FP8 (per tensor)", {DType::f32, DType::bf16, DType::f16}));
    const Buffer& owner = query.owners.emplace_back(query.rows * size_bytes(DType::f32));
    std::fill_n(owner.tensor(DType::f32, {query.rows}).f32(), query.rows, scale);
    weight.scales = owner.data();
    return std::optional(weight);
  }
  const Tensor* scales = TRY(
      need_part(query, ".weight_scale", kChannelName, {DType::f32, DType::bf16, DType::f16}, {Shape{query.rows, 1}, Shape{query.rows}}));
  weight.scales = scales->dtype == DType::f32 ? scales->data : as_f32(query, *scales);
  return std::optional(weight);
}

// The largest magnitude in a rectangle of values [*, cols].
float largest_in(std::span<const float> values, std::int64_t cols, std::int64_t row, std::int64_t rows, std::int64_t col,
                 std::int64_t width) {
  float largest = 0;
  for (std::int64_t r = row; r < row + rows; ++r)
    largest =
        std::max(largest, largest_magnitude(values.subspan(static_cast<std::size_t>(r * cols + col), static_cast<std::size_t>(width))));
  return largest;
}

// Blocks of block_rows x block_cols, the last ones smaller; `scales` has one element a block.
std::vector<PackedTensor> pack_blocks(std::span<const float> values, std::int64_t rows, std::int64_t cols, std::int64_t block_rows,
                                      std::int64_t block_cols, PackedTensor scales) {
  PackedTensor data = make_part(".weight", DType::f8_e4m3, {rows, cols});
  std::byte* next_scale = scales.bytes.data();
  for (std::int64_t row = 0; row < rows; row += block_rows) {
    const std::int64_t height = std::min(block_rows, rows - row);
    for (std::int64_t col = 0; col < cols; col += block_cols, next_scale += sizeof(float)) {
      const std::int64_t width = std::min(block_cols, cols - col);
      const float largest = largest_in(values, cols, row, height, col, width);
      const float scale = largest == 0 ? 1.0f : std::max(largest / kLargestE4M3, 0x1p-126f);
      std::memcpy(next_scale, &scale, sizeof(scale));
      for (std::int64_t r = row; r < row + height; ++r) {
        for (std::int64_t at = r * cols + col; at < r * cols + col + width; ++at) {
          data.bytes[static_cast<std::size_t>(at)] = static_cast<std::byte>(f32_to_e4m3(values[static_cast<std::size_t>(at)] / scale));
        }
      }
    }
  }
  return {std::move(data), std::move(scales)};
}

std::vector<PackedTensor> pack_block(std::span<const float> values, std::int64_t rows, std::int64_t cols, const PackOptions&) {
  return pack_blocks(values, rows, cols, kFp8Block, kFp8Block,
                     make_part(".weight_scale_inv", DType::f32, {blocks_of(rows), blocks_of(cols)}));
}

std::vector<PackedTensor> pack_channel(std::span<const float> values, std::int64_t rows, std::int64_t cols, const PackOptions&) {
  return pack_blocks(values, rows, cols, 1, cols, make_part(".weight_scale", DType::f32, {rows, 1}));
}

template <QuantFormat format>
std::optional<BadScale> find_bad_scale(const Weight& w, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t count = info(format).scale_row_bytes(w.cols) / size_bytes(DType::f32);
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    for (std::int64_t block = 0; block < count; ++block) {
      if (const std::optional<std::string> fault = scale_fault(scale_at(scale_row(w, row), block))) return BadScale{row, block, *fault};
    }
  }
  return std::nullopt;
}

}  // namespace

const FormatInfo kFp8BlockFormat = {.format = QuantFormat::fp8_block,
                                    .name = "FP8 block",
                                    .block_rows = kFp8Block,
                                    .block_cols = kFp8Block,
                                    .row_bytes = row_bytes,
                                    .scale_row_bytes = block_scale_row_bytes,
                                    .dequantise = dequantise_block,
                                    .resolve = resolve_block,
                                    .find_bad_scale = find_bad_scale<QuantFormat::fp8_block>,
                                    .pack = pack_block};

const FormatInfo kFp8ChannelFormat = {.format = QuantFormat::fp8_channel,
                                      .name = "FP8 channel",
                                      .row_bytes = row_bytes,
                                      .scale_row_bytes = channel_scale_row_bytes,
                                      .dequantise = dequantise_channel,
                                      .resolve = resolve_channel,
                                      .find_bad_scale = find_bad_scale<QuantFormat::fp8_channel>,
                                      .pack = pack_channel};

}  // namespace reckoner
