#include "model/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <set>
#include <system_error>

#include "model/fused_experts.h"
#include "quant/format.h"

namespace reckoner {
namespace {

// Remembers which tensors were asked for: the others are unknown.
class RecordingSource : public TensorSource {
 public:
  explicit RecordingSource(const TensorSource& source) : source_(source) {}
  const Tensor* find(std::string_view name) const override {
    const Tensor* tensor = source_.find(name);
    if (tensor != nullptr) used_.emplace(name);
    return tensor;
  }
  std::string locate(std::string_view name) const override { return source_.locate(name); }
  bool used(const std::string& name) const { return used_.contains(name); }

 private:
  const TensorSource& source_;
  mutable std::set<std::string, std::less<>> used_;
};

// Collects problems, so that a damaged checkpoint is described once, not once a try.
class Problems {
 public:
  void add(Error error) {
    if (++count_ <= kShown) text_ += (text_.empty() ? "" : "\n") + error.what;
    if (remedy_.empty()) remedy_ = std::move(error.remedy);
  }
  Status status() const {
    if (count_ == 0) return {};
    return Error{count_ > kShown ? fmt::format("{}\n... and {} more like these", text_, count_ - kShown) : text_, remedy_};
  }

 private:
  static constexpr int kShown = 8;
  int count_ = 0;
  std::string text_;
  std::string remedy_;
};

const char* kFetchAgain = "config.json and the weights are of different models, or the file is damaged: fetch both again";

// A vector as floats of our own.
Result<Tensor> read_vector(const TensorSource& source, const std::string& name, const Shape& shape, std::vector<Buffer>& owners) {
  const Tensor* tensor = source.find(name);
  if (tensor == nullptr)
    return Error{source.locate(name) + ": missing", "fetch the checkpoint again; a shard may not have been downloaded"};
  const std::map<DType, QuantFormat> formats = {
      {DType::f32, QuantFormat::f32}, {DType::f16, QuantFormat::f16}, {DType::bf16, QuantFormat::bf16}};
  const auto format = formats.find(tensor->dtype);
  if (format == formats.end() || tensor->shape != shape) {
    return Error{fmt::format("{}: expected F32, F16 or BF16 {}, found {} {}", source.locate(name), shape.to_string(),
                             reckoner::name(tensor->dtype), tensor->shape.to_string()),
                 kFetchAgain};
  }
  owners.emplace_back(shape.elements() * size_bytes(DType::f32));
  const Tensor values = owners.back().tensor(DType::f32, shape);
  const Weight row{.format = format->second, .rows = 1, .cols = shape.elements(), .data = tensor->data};
  info(row.format).dequantise(row, 0, 0, row.cols, values.f32());
  for (std::int64_t i = 0; i < row.cols; ++i) {
    if (!std::isfinite(values.f32()[i])) {
      return Error{fmt::format("{}: expected finite values, found {} at element {}", source.locate(name), values.f32()[i], i),
                   "the file is damaged or its export went wrong: fetch another copy"};
    }
  }
  return values;
}

void make_room(const ModelConfig& config, ModelWeights& weights) {
  weights.layers.resize(static_cast<std::size_t>(config.num_hidden_layers));
  for (std::size_t layer = 0; layer < weights.layers.size(); ++layer) {
    if (config.mlp_kinds[layer] != MlpKind::sparse) continue;
    for (std::vector<Weight>* experts : {&weights.layers[layer].moe.gate, &weights.layers[layer].moe.up, &weights.layers[layer].moe.down}) {
      experts->resize(static_cast<std::size_t>(config.n_routed_experts));
    }
  }
}

// The kernels run all experts of a layer as one op, so they must be alike.
void check_experts_alike(const TensorSource& source, const ModelWeights& weights, Problems& problems) {
  for (const LayerWeights& layer : weights.layers) {
    for (const std::vector<Weight>* experts : {&layer.moe.gate, &layer.moe.up, &layer.moe.down}) {
      for (const Weight& expert : *experts) {
        if (expert.format == experts->front().format || expert.data == nullptr || experts->front().data == nullptr) continue;
        problems.add(
            {fmt::format("{}: expected {} as in expert 0 of this layer, found {}", source.locate(std::string(expert.name) + ".weight"),
                         info(experts->front().format).name, info(expert.format).name),
             "export the model with all experts of a layer in one format"});
      }
    }
  }
}

// Before room is made for what a damaged config asks for. Smaller differences are reported tensor by tensor.
Status check_count(const Family& family, const ModelConfig& config, const Checkpoint& checkpoint) {
  std::int64_t wanted = 0;
  for_each_rule(family, config, [&](const WeightRule& rule) { wanted += count_places(rule, config); });
  const auto present = static_cast<std::int64_t>(checkpoint.tensors().size());
  // A fused tensor holds up to two projections of every expert of a layer.
  const bool fused = std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                                 [](const CheckpointTensor& entry) { return entry.name.ends_with(".experts.gate_up_proj"); });
  if (wanted <= 2 * present * (fused ? std::max<std::int64_t>(1, config.n_routed_experts) : 1)) return {};
  return Error{fmt::format("{}: num_hidden_layers = {} and n_routed_experts = {} ask for {} weights, the checkpoint has {} tensors",
                           config.where, config.num_hidden_layers, config.n_routed_experts, wanted, present),
               kFetchAgain};
}

void check_unknown(const Model& model, const RecordingSource& source, Problems& problems, std::vector<std::string>& notes) {
  const std::vector<std::string> mtp = mtp_prefixes(*model.family, model.config, *model.checkpoint);
  const auto starts_with_one_of = [](const std::string& name, const auto& prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) { return name.starts_with(prefix); });
  };
  std::int64_t mtp_bytes = 0;
  std::int64_t skipped = 0;
  std::int64_t skipped_bytes = 0;
  for (const CheckpointTensor& entry : model.checkpoint->tensors()) {
    if (source.used(entry.name) || is_unneeded(entry.name)) continue;
    if (starts_with_one_of(entry.name, mtp)) {
      mtp_bytes += entry.tensor.bytes();
    } else if (starts_with_one_of(entry.name, model.family->skipped)) {
      ++skipped;
      skipped_bytes += entry.tensor.bytes();
    } else {
      problems.add({fmt::format("{}: unknown; a {} of {} layers has no such tensor", model.checkpoint->locate(entry.name),
                                model.config.model_type, model.config.num_hidden_layers),
                    "check that config.json belongs to these weights"});
    }
  }
  if (skipped > 0)
    notes.push_back(fmt::format("{} tensors of other parts of the model ({:.1f} MB, e.g. its vision tower) are skipped: text only", skipped,
                                static_cast<double>(skipped_bytes) / 1e6));
  if (mtp_bytes > 0)
    notes.push_back(fmt::format("the MTP layer ({:.1f} MB) is not used yet and stays on disk", static_cast<double>(mtp_bytes) / 1e6));
  if (mtp_bytes == 0 && model.config.num_nextn_predict_layers > 0) {
    notes.push_back("config.json promises an MTP layer (num_nextn_predict_layers); the checkpoint has none");
  }
}

template <class Visit>
void for_each_matrix(const Model& model, Visit&& visit) {
  auto& weights = const_cast<ModelWeights&>(model.weights);
  for_each_rule(*model.family, model.config, [&](const WeightRule& rule) {
    if (rule.matrix == nullptr) return;
    for_each_place(rule, model.config, [&](WeightPlace place) { visit(static_cast<const Weight&>(rule.matrix(weights, place))); });
  });
}

// What the metadata says about a module against what its tensors are. The tensors win; a difference is worth a note.
void compare_with_metadata(Model& model) {
  std::int64_t quantised_though_excluded = 0;
  std::string example;
  for_each_matrix(model, [&](const Weight& w) {
    if (is_quantised(w.format) && (model.quant.method.empty() || excluded(model.quant, w.name))) {
      if (quantised_though_excluded++ == 0) example = w.name;
    }
  });
  if (quantised_though_excluded > 0) {
    model.notes.push_back(
        fmt::format("{} weights are quantised although the quantisation metadata excludes them (the first: {}); the tensors decide",
                    quantised_though_excluded, example));
  }
}

}  // namespace

bool is_unneeded(std::string_view name) {
  // Scales of an FP8 KV cache: the cache here has scales of its own, one a row. Rotary frequencies follow from config.json.
  for (const std::string_view suffix : {".k_scale", ".v_scale", ".q_scale", ".prob_scale", ".rotary_emb.inv_freq"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

std::vector<std::string> mtp_prefixes(const Family& family, const ModelConfig& config, const TensorSource& source) {
  std::vector<std::string> prefixes;
  for (std::int64_t layer = 0; layer < std::max<std::int64_t>(config.num_nextn_predict_layers, 1); ++layer) {
    std::string prefix = layer_prefix(family, config.num_hidden_layers + layer);
    // A quantised eh_proj has other tensors.
    for (const char* suffix : {"eh_proj.weight", "eh_proj.weight_packed"}) {
      if (source.find(prefix + suffix) == nullptr) continue;
      prefixes.push_back(prefix);
      break;
    }
  }
  return prefixes;
}

Result<ModelWeights> place_weights(const Family& family, const ModelConfig& config, const TensorSource& source) {
  ModelWeights weights;
  make_room(config, weights);
  Problems problems;
  const FusedExperts with_parts(source);
  for_each_rule(family, config, [&](const WeightRule& rule) {
    const Shape shape = rule.shape(config);
    for_each_place(rule, config, [&](WeightPlace place) {
      const std::string name = published_name(family, rule, place);
      if (rule.matrix != nullptr) {
        Result<Weight> weight = resolve_weight({with_parts, name, shape[0], shape[1], weights.owners});
        if (!weight) return problems.add(std::move(weight).error());
        weight->name = weights.names.emplace_back(name);
        rule.matrix(weights, place) = *weight;
      } else {
        Result<Tensor> vector = read_vector(source, name, shape, weights.owners);
        if (!vector) return problems.add(std::move(vector).error());
        rule.vector(weights, place) = *vector;
      }
    });
  });
  if (config.tie_word_embeddings) weights.lm_head = weights.embed;
  check_experts_alike(source, weights, problems);
  TRY(problems.status());
  return weights;
}

Result<std::unique_ptr<Model>> open_model(const std::filesystem::path& folder) {
  auto model = std::make_unique<Model>();
  // What is there instead tells more than the lack of config.json: no folder, a file, another format.
  std::error_code error;
  if (!std::filesystem::exists(folder / "config.json", error)) static_cast<void>(TRY(Checkpoint::open(folder)));
  model->config = TRY(read_model_config(folder));
  model->quant = TRY(read_quant_metadata(folder));
  model->family = TRY(find_family(model->config));
  model->checkpoint = TRY(Checkpoint::open(folder));
  model->notes = model->checkpoint->notes();
  TRY(check_count(*model->family, model->config, *model->checkpoint));
  const RecordingSource source(*model->checkpoint);
  model->weights = TRY(place_weights(*model->family, model->config, source));
  Problems problems;
  check_unknown(*model, source, problems, model->notes);
  TRY(problems.status());
  for_each_matrix(*model, [&](const Weight& w) { model->weight_bytes += weight_bytes(w); });
  for (const Buffer& owner : model->weights.owners) model->weight_bytes += owner.size_bytes();
  compare_with_metadata(*model);
  return model;
}

namespace {

// A run of rows of one weight: what one item of the reading loop covers.
struct ReadPiece {
  const Weight* weight;
  std::int64_t first_row;
  std::int64_t rows;
};

std::vector<ReadPiece> pieces_of(const Model& model) {
  constexpr std::int64_t kPieceBytes = 4 << 20;
  std::vector<ReadPiece> pieces;
  for_each_matrix(model, [&](const Weight& w) {
    const std::int64_t rows = std::max<std::int64_t>(1, kPieceBytes / std::max<std::int64_t>(1, weight_bytes(w) / w.rows));
    for (std::int64_t first = 0; first < w.rows; first += rows) pieces.push_back({&w, first, std::min(rows, w.rows - first)});
  });
  return pieces;
}

// Reads one byte of each memory page, so that the system fetches it.
void touch(const std::byte* data, std::int64_t bytes) {
  constexpr std::int64_t kMemoryPage = 4096;
  for (std::int64_t at = 0; at < bytes; at += kMemoryPage) static_cast<void>(*static_cast<const volatile std::byte*>(data + at));
}

}  // namespace

Status read_rows(const Model& model, const Weight& weight, std::int64_t first_row, std::int64_t rows) {
  touch(row_range(weight, first_row, 1).data, rows * info(weight.format).row_bytes(weight.cols));
  return check_scales(model, weight, first_row, rows);
}

Status check_scales(const Model& model, const Weight& weight, std::int64_t first_row, std::int64_t rows) {
  const Weight part = row_range(weight, first_row, rows);
  if (info(part.format).find_bad_scale == nullptr) return {};
  const std::optional<BadScale> bad = info(part.format).find_bad_scale(part, 0, part.rows);
  if (!bad) return {};
  std::string name = std::string(part.name) + ".weight_scale";
  const std::optional<Checkpoint>& checkpoint = model.whole != nullptr ? model.whole->checkpoint : model.checkpoint;
  if (checkpoint && checkpoint->find(name + "_inv") != nullptr) name += "_inv";
  // Rows are counted in the tensor, of which a rank may have a part.
  return Error{fmt::format("{}: expected finite block scales above zero, found {} at row {}, block {}",
                           checkpoint ? checkpoint->locate(name) : name, bad->what, part.first_row + bad->row, bad->block),
               "the file is damaged or its export went wrong (an expert without calibration?): fetch another copy or export again"};
}

Status read_weights(const Model& model, ThreadPool& pool, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::vector<ReadPiece> pieces = pieces_of(model);
  std::vector<Status> results(pieces.size());
  std::atomic<std::int64_t> done = 0;
  pool.parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t item, int thread) {
    const ReadPiece& piece = pieces[static_cast<std::size_t>(item)];
    results[static_cast<std::size_t>(item)] = read_rows(model, *piece.weight, piece.first_row, piece.rows);
    done += weight_bytes(*piece.weight) / piece.weight->rows * piece.rows;
    if (thread == 0 && progress) progress(done, model.weight_bytes);
  });
  for (Status& result : results) TRY(std::move(result));
  if (progress) progress(model.weight_bytes, model.weight_bytes);
  return {};
}

}  // namespace reckoner
