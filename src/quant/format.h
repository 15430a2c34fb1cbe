// A format: how its rows are stored, how they are read back, how a checkpoint spells it. One file a format; list.cpp holds the list.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "quant/weight.h"
#include "tensor/tensor_source.h"

namespace reckoner {

struct FormatInfo {
  QuantFormat format;
  std::string_view name;
  std::int64_t block_cols;                             // columns that share one scale; cols must be a multiple
  std::int64_t (*row_bytes)(std::int64_t cols);        // of `data`
  std::int64_t (*scale_row_bytes)(std::int64_t cols);  // of `scales`
  // out[i] = w[row, first + i] for i < count, tensor scale included; `first` and `count` may be any.
  void (*dequantise)(const Weight& w, std::int64_t row, std::int64_t first, std::int64_t count, float* out);
  // The module's weight if `source` holds it in this format: checked against [rows, cols], scales checked too. Nothing if it is
  // another format; an error if it is this format and broken.
  Result<std::optional<Weight>> (*resolve)(const TensorSource& source, const std::string& module, std::int64_t rows, std::int64_t cols);
};

std::span<const FormatInfo> formats();
const FormatInfo& info(QuantFormat format);

// Bytes of data and scales.
std::int64_t weight_bytes(const Weight& w);

// The weight of `module` ("model.layers.0.mlp.gate_proj") in whichever format the tensors that are present say. Its name refers to
// `module`, which a caller that keeps the weight must keep too.
Result<Weight> resolve_weight(const TensorSource& source, const std::string& module, std::int64_t rows, std::int64_t cols);

}  // namespace reckoner
