#include "matrix.h"

#include <cstring>

#include "quant/format.h"

namespace reckoner {
namespace {

constexpr std::int64_t kPackedRows = 128;  // a whole block of scales in every format; packing more would only take longer

std::vector<float> some_values(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-36f;
  }
  return values;
}

// `bytes` of memory that repeat the first `period` of `from`.
Buffer repeated(const std::byte* from, std::int64_t period, std::int64_t bytes) {
  Buffer buffer(bytes);
  for (std::int64_t at = 0; at < bytes; at += period) std::memcpy(buffer.data() + at, from, static_cast<std::size_t>(period));
  return buffer;
}

}  // namespace

MatrixBench::MatrixBench(ThreadPool& pool, const DeviceInfo& device, const Catalogue& catalogue, QuantFormat format, Precision precision,
                         std::int64_t tokens)
    : x_(tokens * kCols * size_bytes(DType::f32)), y_(tokens * kRows * size_bytes(DType::f32)), ops_(catalogue, device, pool) {
  const PackedMatrix packed(format, "layer", some_values(kPackedRows * kCols), kPackedRows, kCols);
  const FormatInfo& layout = info(format);
  args_ = {.x = x_.tensor(DType::f32, {tokens, kCols}),
           .w = packed.weight(),
           .y = y_.tensor(DType::f32, {tokens, kRows}),
           .precision = precision};
  const std::vector<float> x = some_values(tokens * kCols);
  std::memcpy(x_.data(), x.data(), x.size() * sizeof(float));
  const std::int64_t row_bytes = layout.row_bytes(kCols);
  data_ = repeated(args_.w.data, kPackedRows * row_bytes, kRows * row_bytes);
  args_.w.rows = kRows;
  args_.w.data = data_.data();
  args_.w.name = {};
  if (args_.w.scales != nullptr) {
    const std::int64_t scale_bytes = layout.scale_row_bytes(kCols);
    scales_ = repeated(args_.w.scales, kPackedRows / layout.block_rows * scale_bytes, kRows / layout.block_rows * scale_bytes);
    args_.w.scales = scales_.data();
  }
  ops_.begin_plan();
  ops_(args_);
  call_ = ops_.end_plan().front();
}

}  // namespace reckoner
