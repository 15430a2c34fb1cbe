#include "diagnose/verify/dequantised.h"

#include <algorithm>
#include <map>
#include <random>

#include "engine/single_sequence.h"
#include "quant/format.h"

namespace reckoner {
namespace {

// The checkpoint with F32 tensors in the place of others.
class DequantisedSource : public TensorSource {
 public:
  explicit DequantisedSource(const TensorSource& checkpoint) : checkpoint_(checkpoint) {}
  void put(std::string name, const Tensor& tensor) { tensors_.emplace(std::move(name), tensor); }
  const Tensor* find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? checkpoint_.find(name) : &found->second;
  }
  std::string locate(std::string_view name) const override { return checkpoint_.locate(name); }

 private:
  const TensorSource& checkpoint_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

std::vector<const Weight*> matrices_to_expand(const Model& model) {
  std::vector<const Weight*> found;
  auto& weights = const_cast<ModelWeights&>(model.weights);
  for_each_rule(*model.family, model.config, [&](const WeightRule& rule) {
    if (rule.matrix == nullptr) return;
    for_each_place(rule, model.config, [&](WeightPlace place) {
      const Weight& w = rule.matrix(weights, place);
      if (w.format != QuantFormat::f32) found.push_back(&w);
    });
  });
  return found;
}

Tensor expand(const Weight& w, ThreadPool& pool, std::vector<Buffer>& owners) {
  owners.emplace_back(w.rows * w.cols * size_bytes(DType::f32));
  const Tensor values = owners.back().tensor(DType::f32, {w.rows, w.cols});
  pool.parallel_for(w.rows, [&](std::int64_t row, int) { info(w.format).dequantise(w, row, 0, w.cols, values.f32() + row * w.cols); });
  return values;
}

}  // namespace

std::int64_t dequantised_bytes(const Model& model) {
  std::int64_t bytes = 0;
  for (const Weight* w : matrices_to_expand(model)) bytes += w->rows * w->cols * size_bytes(DType::f32);
  return bytes;
}

Result<std::unique_ptr<Model>> dequantised(const Model& model, ThreadPool& pool) {
  auto expanded = std::make_unique<Model>();
  expanded->config = model.config;
  expanded->family = model.family;
  DequantisedSource source(*model.checkpoint);
  std::vector<Buffer> owners;
  for (const Weight* w : matrices_to_expand(model)) source.put(std::string(w->name) + ".weight", expand(*w, pool, owners));
  expanded->weights = TRY(place_weights(*model.family, model.config, source));
  for (Buffer& owner : owners) expanded->weights.owners.push_back(std::move(owner));
  return expanded;
}

std::vector<std::int32_t> random_tokens(const ModelConfig& config, std::uint64_t seed) {
  constexpr std::int64_t kLeast = 96;
  constexpr std::int64_t kBeyond = 48;  // positions that have more before them than attention may look at
  const std::int64_t count = std::min(std::max(kLeast, config.index_topk + kBeyond), config.max_position_embeddings);
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(config.vocab_size));
  return ids;
}

ReferenceCase record_reference(StepRunner& runner, std::string name, std::vector<std::int32_t> input_ids) {
  constexpr std::int64_t kRows = 64;  // whose logits and hidden states are kept
  const auto tokens = static_cast<std::int64_t>(input_ids.size());
  const std::int64_t kept_from = std::max<std::int64_t>(0, tokens - kRows);
  const ModelConfig& config = runner.config();
  ReferenceCase reference{.name = std::move(name),
                          .input_ids = std::move(input_ids),
                          .first_logit_row = kept_from,
                          .vocab = config.vocab_size,
                          .first_hidden_row = kept_from};
  reference.hidden.resize(static_cast<std::size_t>(config.num_hidden_layers + 1));
  SingleSequence sequence(runner);
  std::int64_t first = 0;
  const auto keep = [&](std::vector<float>& rows, const Tensor& values) {
    const std::int64_t skipped = std::clamp<std::int64_t>(kept_from - first, 0, values.dim(0));
    rows.insert(rows.end(), values.f32() + skipped * values.dim(1), values.f32() + values.shape.elements());
  };
  runner.taps = [&](std::string_view tap, std::int64_t layer, const Tensor& value) {
    if (tap == "hidden") keep(reference.hidden[static_cast<std::size_t>(layer)], value);
  };
  for (std::int64_t count = 0; first < tokens; first += count) {
    count = std::min(runner.limits().max_tokens, tokens - first);
    const auto part = std::span(reference.input_ids).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    const Tensor logits = sequence.append(part, Sample::yes).logits;
    keep(reference.logits, logits);
    for (std::int64_t row = 0; row < count; ++row) {
      const float* values = logits.f32() + row * config.vocab_size;
      reference.argmax.push_back(static_cast<std::int32_t>(std::max_element(values, values + config.vocab_size) - values));
    }
  }
  runner.taps = {};
  return reference;
}

}  // namespace reckoner
