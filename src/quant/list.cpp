// The list of formats. A new one is one new file and one line here (and its name in QuantFormat).
#include <fmt/format.h>

#include <array>

#include "base/check.h"
#include "quant/fp8.h"
#include "quant/int4.h"
#include "quant/mx.h"
#include "quant/nvfp4.h"
#include "quant/plain.h"

namespace reckoner {
namespace {

// In the order of QuantFormat.
const std::array<FormatInfo, kQuantFormats>& list() {
  static const std::array<FormatInfo, kQuantFormats> formats = {kPlainFormats[0], kPlainFormats[1],  kPlainFormats[2],
                                                                kNvfp4Format,     kMxfp4Format,      kInt4Format,
                                                                kFp8BlockFormat,  kFp8ChannelFormat, kMxfp8Format};
  return formats;
}

// MX formats share their dtypes with others and are told by their scales: they are asked first.
constexpr QuantFormat kAsked[] = {QuantFormat::f32,      QuantFormat::f16,       QuantFormat::bf16,
                                  QuantFormat::mxfp4,    QuantFormat::mxfp8,     QuantFormat::nvfp4,
                                  QuantFormat::int4_g32, QuantFormat::fp8_block, QuantFormat::fp8_channel};
static_assert(std::size(kAsked) == kQuantFormats);

}  // namespace

std::span<const FormatInfo> formats() { return list(); }

const FormatInfo& info(QuantFormat format) {
  const FormatInfo& found = list()[static_cast<std::size_t>(format)];
  CHECK(found.format == format);
  return found;
}

const std::byte* scale_row(const Weight& w, std::int64_t row) {
  const FormatInfo& format = info(w.format);
  return w.scales + (w.first_row + row) / format.block_rows * format.scale_row_bytes(w.cols);
}

std::int64_t weight_bytes(const Weight& w) {
  const FormatInfo& format = info(w.format);
  const std::int64_t scale_rows = (w.rows + format.block_rows - 1) / format.block_rows;
  return w.rows * format.row_bytes(w.cols) + scale_rows * format.scale_row_bytes(w.cols);
}

Weight row_range(const Weight& w, std::int64_t first, std::int64_t count) {
  CHECK(first >= 0 && first + count <= w.rows);
  Weight part = w;
  part.rows = count;
  part.data += first * info(w.format).row_bytes(w.cols);
  part.first_row += first;
  return part;
}

Result<Weight> resolve_weight(const WeightQuery& query) {
  for (const QuantFormat format : kAsked) {
    if (std::optional<Weight> weight = TRY(info(format).resolve(query))) return *weight;
  }
  const Tensor* tensor = query.source.find(query.module + ".weight");
  if (tensor == nullptr) {
    return Error{fmt::format("{}: missing", query.source.locate(query.module + ".weight")),
                 "fetch the checkpoint again; a shard may not have been downloaded"};
  }
  return Error{
      fmt::format("{}: dtype {} is not a weight format that Reckoner reads (F32, F16, BF16; NVFP4, MXFP4, MXFP8, INT4 in groups of "
                  "32, FP8 by block, channel or tensor)",
                  query.source.locate(query.module + ".weight"), name(tensor->dtype)),
      "use an export of the model in one of these formats"};
}

PackedMatrix::PackedMatrix(QuantFormat format, std::string module, std::span<const float> values, std::int64_t rows, std::int64_t cols,
                           const PackOptions& options)
    : module_(std::move(module)) {
  CHECK(cols % info(format).cols_multiple == 0 && static_cast<std::int64_t>(values.size()) == rows * cols);
  packed_ = info(format).pack(values, rows, cols, options);
  for (PackedTensor& part : packed_)
    views_.emplace_back(module_ + std::string(part.suffix), Tensor{.data = part.bytes.data(), .dtype = part.dtype, .shape = part.shape});
  Result<Weight> weight = resolve_weight({*this, module_, rows, cols, owners_});
  CHECK(weight.ok(), weight.ok() ? "" : weight.error().what);
  weight_ = *weight;
}

const Tensor* PackedMatrix::find(std::string_view name) const {
  for (const auto& [own, tensor] : views_) {
    if (own == name) return &tensor;
  }
  return nullptr;
}

}  // namespace reckoner
