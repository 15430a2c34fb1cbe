#include "quant/nvfp4.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/dtype.h"

namespace reckoner {
namespace {

std::int64_t row_bytes(std::int64_t cols) { return cols / 2; }
std::int64_t scale_row_bytes(std::int64_t cols) { return cols / kNvfp4Block; }

void dequantise(const Weight& w, std::int64_t row, std::int64_t first, std::int64_t count, float* out) {
  const std::byte* codes = w.data + row * row_bytes(w.cols);
  const std::byte* scales = w.scales + row * scale_row_bytes(w.cols);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t col = first + i;
    const auto pair = static_cast<unsigned>(codes[col / 2]);
    const float block_scale = e4m3_to_f32(static_cast<std::uint8_t>(scales[col / kNvfp4Block]));
    out[i] = kE2M1[col % 2 == 0 ? pair & 15 : pair >> 4] * block_scale * w.scale;
  }
}

const char* kFetchAgain = "config.json and the weights are of different models, or the file is damaged: fetch both again";

Status expect(const TensorSource& source, const std::string& name, DType dtype, const Shape& shape, const Shape& shape_alternative) {
  const Tensor* tensor = source.find(name);
  if (tensor == nullptr) {
    return Error{fmt::format("{}: missing; a weight in NVFP4 needs it", source.locate(name)),
                 "fetch the checkpoint again, or export it again with ModelOpt"};
  }
  if (tensor->dtype != dtype || (tensor->shape != shape && tensor->shape != shape_alternative)) {
    return Error{fmt::format("{}: expected {} {}, found {} {}", source.locate(name), reckoner::name(dtype), shape.to_string(),
                             reckoner::name(tensor->dtype), tensor->shape.to_string()),
                 kFetchAgain};
  }
  return {};
}

Result<std::optional<Weight>> resolve(const TensorSource& source, const std::string& module, std::int64_t rows, std::int64_t cols) {
  const std::string data_name = module + ".weight";
  const Tensor* data = source.find(data_name);
  if (data == nullptr || data->dtype != DType::u8) return std::optional<Weight>();
  if (cols % kNvfp4Block != 0) {
    return Error{fmt::format("{}: NVFP4 needs a multiple of {} columns, config.json says {}", source.locate(data_name), kNvfp4Block, cols),
                 kFetchAgain};
  }
  const Shape packed{rows, cols / 2};
  const Shape blocks{rows, cols / kNvfp4Block};
  TRY(expect(source, data_name, DType::u8, packed, packed));
  TRY(expect(source, module + ".weight_scale", DType::f8_e4m3, blocks, blocks));
  TRY(expect(source, module + ".weight_scale_2", DType::f32, {}, {1}));
  float scale = 0;
  std::memcpy(&scale, source.find(module + ".weight_scale_2")->data, sizeof(scale));
  if (!std::isfinite(scale) || scale <= 0) {
    return Error{fmt::format("{}: expected a finite scale above zero, found {}", source.locate(module + ".weight_scale_2"), scale),
                 "the export went wrong (an expert without calibration?): export again, or fetch another copy"};
  }
  source.find(module + ".input_scale");  // belongs to the format; only needed where activations are quantised to FP4 too
  return std::optional(Weight{.format = QuantFormat::nvfp4,
                              .rows = rows,
                              .cols = cols,
                              .data = data->data,
                              .scales = source.find(module + ".weight_scale")->data,
                              .scale = scale,
                              .name = module});
}

// Nearest E2M1 code of a magnitude; ties to the even code.
unsigned nearest_code(float magnitude) {
  unsigned best = 0;
  for (unsigned code = 1; code < 8; ++code) {
    const float distance = std::fabs(magnitude - kE2M1[code]);
    const float best_distance = std::fabs(magnitude - kE2M1[best]);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
  }
  return best;
}

}  // namespace

const FormatInfo kNvfp4Format = {.format = QuantFormat::nvfp4,
                                 .name = "NVFP4",
                                 .block_cols = kNvfp4Block,
                                 .row_bytes = row_bytes,
                                 .scale_row_bytes = scale_row_bytes,
                                 .dequantise = dequantise,
                                 .resolve = resolve};

Nvfp4Matrix pack_nvfp4(std::span<const float> values, std::int64_t rows, std::int64_t cols) {
  CHECK(cols % kNvfp4Block == 0 && static_cast<std::int64_t>(values.size()) == rows * cols);
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  Nvfp4Matrix packed{.data = std::vector<std::byte>(static_cast<std::size_t>(rows * cols / 2)),
                     .scales = std::vector<std::byte>(static_cast<std::size_t>(rows * cols / kNvfp4Block)),
                     .weight = {}};
  const float scale = largest > 0 ? largest / (6.0f * 448.0f) : 1.0f;
  for (std::int64_t block = 0; block < rows * cols / kNvfp4Block; ++block) {
    const std::span<const float> group = values.subspan(static_cast<std::size_t>(block * kNvfp4Block), kNvfp4Block);
    float block_largest = 0;
    for (const float value : group) block_largest = std::max(block_largest, std::fabs(value));
    const std::uint8_t block_scale =
        block_largest == 0 ? f32_to_e4m3(1.0f) : f32_to_e4m3(std::clamp(block_largest / 6.0f / scale, 0x1p-9f, 448.0f));
    packed.scales[static_cast<std::size_t>(block)] = static_cast<std::byte>(block_scale);
    for (std::int64_t i = 0; i < kNvfp4Block; ++i) {
      const float value = group[static_cast<std::size_t>(i)];
      const unsigned code = nearest_code(std::fabs(value) / (e4m3_to_f32(block_scale) * scale)) | (std::signbit(value) ? 8u : 0u);
      packed.data[static_cast<std::size_t>((block * kNvfp4Block + i) / 2)] |= static_cast<std::byte>(i % 2 == 0 ? code : code << 4);
    }
  }
  packed.weight = {
      .format = QuantFormat::nvfp4, .rows = rows, .cols = cols, .data = packed.data.data(), .scales = packed.scales.data(), .scale = scale};
  return packed;
}

std::optional<BadScale> find_bad_scale(const Weight& w, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t blocks = w.cols / kNvfp4Block;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const auto bits = static_cast<unsigned>(w.scales[row * blocks + block]);
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

}  // namespace reckoner
