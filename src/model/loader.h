// From a model folder to weights in place: everything is validated before the first weight is used.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "formats/checkpoint.h"
#include "formats/model_config.h"
#include "formats/quant_metadata.h"
#include "model/family.h"
#include "model/weights.h"

namespace reckoner {

struct Model {
  ModelConfig config;
  QuantMetadata quant;
  const Family* family = nullptr;
  std::optional<Checkpoint> checkpoint;  // owns the bytes; none for a model made in memory
  ModelWeights weights;
  std::vector<std::string> notes;  // oddities that do not prevent serving
  std::int64_t weight_bytes = 0;   // of the weights in place
  // Of a rank's share of a model: that model, which owns the bytes of what was not copied, and the names; and which rank's it is.
  const Model* whole = nullptr;
  Rank rank = {};
};

// Reads headers and metadata and puts every weight in place: shapes, dtypes, tensor scales, missing and unknown tensors are checked, no
// weight is read. Seconds at most. All problems with tensors are reported together (the first ones in full).
Result<std::unique_ptr<Model>> open_model(const std::filesystem::path& folder);

// Brings all weights into memory and checks every block scale, in parallel. `progress` is called now and then from the calling thread
// with the bytes done and the bytes in all.
Status read_weights(const Model& model, ThreadPool& pool, const std::function<void(std::int64_t done, std::int64_t total)>& progress);

// The same for some rows of one weight.
Status read_rows(const Model& model, const Weight& weight, std::int64_t first_row, std::int64_t rows);

// Whether the block scales of rows [first_row, first_row + rows) can be right; the error names tensor and row. What read_weights checks.
Status check_scales(const Model& model, const Weight& weight, std::int64_t first_row, std::int64_t rows);

// Name prefixes ("model.layers.78.") of the MTP layers that are there. They stand behind the decoder layers; their eh_proj tells them from
// decoder layers that a config with too few layers would leave out. They are not used yet.
std::vector<std::string> mtp_prefixes(const Family& family, const ModelConfig& config, const TensorSource& source);

// Tensors that belong to published checkpoints and that nothing here needs: scales of a KV cache, rotary frequencies.
bool is_unneeded(std::string_view tensor);

// Puts the tensors of `source` in their places. Used by open_model, and by benchmarks with made-up weights.
Result<ModelWeights> place_weights(const Family& family, const ModelConfig& config, const TensorSource& source);

}  // namespace reckoner
