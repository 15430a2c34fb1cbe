// A format: how its rows are stored, how they are read back and made, how a checkpoint spells it. One file a format (or a few that are
// alike); list.cpp holds the list.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "quant/weight.h"
#include "tensor/tensor_source.h"

namespace reckoner {

// The first block scale that cannot be right, and what it is: "NaN", "0", "-1".
struct BadScale {
  std::int64_t row, block;
  std::string what;
};

// A module ("model.layers.0.mlp.gate_proj") that should be a matrix [rows, cols], and where to look for its tensors.
struct WeightQuery {
  const TensorSource& source;
  const std::string& module;
  std::int64_t rows;
  std::int64_t cols;
  std::vector<Buffer>& owners;  // gets the memory of scales that are not used as they lie in the file (another dtype, say)
};

// One tensor of a packed matrix, as a checkpoint stores it.
struct PackedTensor {
  std::string_view suffix;  // after the module's name: ".weight_scale"
  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;
};

struct PackOptions {
  // The largest magnitude to derive a tensor-wide scale from, when several matrices must share one (gate and up); 0: the matrix's own.
  float largest = 0;
};

struct FormatInfo {
  QuantFormat format;
  std::string_view name;
  std::int64_t block_rows = 1;                         // rows and
  std::int64_t block_cols = 1;                         // columns that share one scale
  std::int64_t cols_multiple = 1;                      // that cols must be of
  std::int64_t (*row_bytes)(std::int64_t cols);        // of `data`
  std::int64_t (*scale_row_bytes)(std::int64_t cols);  // of `scales`
  // out[i] = w[row, first + i] for i < count, tensor scale included; `first` and `count` may be any.
  void (*dequantise)(const Weight& w, std::int64_t row, std::int64_t first, std::int64_t count, float* out);
  // The module's weight if the source holds it in this format: checked against [rows, cols], tensor scales checked too. Nothing if it is
  // another format; an error if it is this format and broken.
  Result<std::optional<Weight>> (*resolve)(const WeightQuery& query);
  // Looks at the scales of rows [first, first + rows); nullptr where there are none.
  std::optional<BadScale> (*find_bad_scale)(const Weight& w, std::int64_t first_row, std::int64_t rows);
  // `values` [rows, cols], finite, in this format; cols must be a multiple of cols_multiple.
  std::vector<PackedTensor> (*pack)(std::span<const float> values, std::int64_t rows, std::int64_t cols, const PackOptions& options);
};

std::span<const FormatInfo> formats();
const FormatInfo& info(QuantFormat format);

// Bytes of data and scales.
std::int64_t weight_bytes(const Weight& w);

// The weight of the module in whichever format the tensors that are present say. Its name refers to `query.module`, which a caller that
// keeps the weight must keep too.
Result<Weight> resolve_weight(const WeightQuery& query);

// A matrix that was packed, as a source of the tensors that a checkpoint would hold for it.
class PackedMatrix : public TensorSource {
 public:
  PackedMatrix(QuantFormat format, std::string module, std::span<const float> values, std::int64_t rows, std::int64_t cols,
               const PackOptions& options = {});

  const Tensor* find(std::string_view name) const override;
  std::string locate(std::string_view name) const override { return "tensor '" + std::string(name) + "'"; }
  std::vector<PackedTensor>& tensors() { return packed_; }
  // Refers to this object.
  const Weight& weight() const { return weight_; }

 private:
  std::string module_;
  std::vector<PackedTensor> packed_;
  std::vector<std::pair<std::string, Tensor>> views_;
  std::vector<Buffer> owners_;
  Weight weight_;
};

}  // namespace reckoner
