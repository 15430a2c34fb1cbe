#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "model/blocks/blocks.h"
#include "model/rope.h"

namespace reckoner {

Tensor Arena::allocate(DType dtype, const Shape& shape) {
  const std::int64_t alignment = memory_ == nullptr ? 64 : 256;
  Tensor tensor{.data = nullptr, .dtype = dtype, .shape = shape};
  if (buffer_.size_bytes() > 0) tensor = buffer_.tensor(dtype, shape, used_);
  used_ += (tensor.bytes() + alignment - 1) / alignment * alignment;
  peak_ = std::max(peak_, used_);
  return tensor;
}

std::string GuardPlace::name(std::int32_t place) {
  if (place == kEmbedding) return "the embedding";
  return fmt::format("layer {}, {}", (place - 1) / 2, place % 2 == 1 ? "attention" : "feed-forward");
}

Tensor Forward::linear(const Tensor& x, const Weight& w) { return linear(x, w, precision); }

Tensor Forward::linear(const Tensor& x, const Weight& w, Precision with) {
  const Tensor y = scratch.f32({x.dim(0), w.rows});
  ops(LinearArgs{.x = x, .w = w, .y = y, .precision = with});
  return y;
}

void Forward::add_ranks(const Tensor& x) const {
  if (ranks != nullptr && !ops.planning()) ranks->all_reduce(x, ops.stream());
}

StepRunner::StepRunner(const Model& model, const ModelWeights& weights, const Device& device, ThreadPool& pool, Precision precision,
                       const StepLimits& limits)
    : model_(model),
      weights_(weights),
      precision_(precision),
      limits_(limits),
      memory_(device.memory),
      ranks_(device.ranks),
      graphs_(device.graphs),
      ops_(device, pool),
      arena_(device.memory),
      cache_(cache_layout()) {
  place_frequencies(rope_frequencies(model.config));
  // Kernels may work otherwise, and need more, when a step is small: every size is planned.
  for (std::int64_t tokens = limits.max_tokens; tokens >= 1; --tokens)
    plan_step(tokens, std::min(tokens, limits.max_samples), limits.max_context);
  arena_.reserve();
  if (memory_ == nullptr) return;
  step_ = std::make_unique<DeviceStep>(*memory_, ops_.stream(), limits_, output_bytes());
  // Memory that is taken while another rank's device waits for this one might wait for that device.
  if (ranks_ != nullptr)
    step_->reserve_taps(limits_.max_tokens * std::max(model_.config.hidden_size, model_.config.n_routed_experts) * size_bytes(DType::f32));
}

void StepRunner::place_frequencies(const std::vector<float>& frequencies) {
  const auto pairs = static_cast<std::int64_t>(frequencies.size());
  Buffer values(pairs * size_bytes(DType::f32), memory_, BufferKind::pinned);
  if (memory_ != nullptr && !memory_->status().ok()) return;
  std::copy(frequencies.begin(), frequencies.end(), values.tensor(DType::f32, {pairs}).f32());
  if (memory_ == nullptr) {
    frequencies_storage_ = std::move(values);
  } else {
    frequencies_storage_ = Buffer(values.size_bytes(), memory_);
    memory_->copy_in(ops_.stream(), frequencies_storage_.data(), values.data(), values.size_bytes());
    memory_->synchronise(ops_.stream());
  }
  frequencies_ = frequencies_storage_.tensor(DType::f32, {pairs});
}

Status StepRunner::status() const {
  if (!ops_.status().ok()) return ops_.status();
  return memory_ == nullptr ? Status() : memory_->status();
}

std::vector<Ops::Call> StepRunner::plan_step(std::int64_t tokens, std::int64_t samples, std::int64_t context) {
  const auto without_data = [](const Shape& shape) { return Tensor{.data = nullptr, .dtype = DType::i32, .shape = shape}; };
  Batch batch{.tokens = without_data({tokens}), .places = {.positions = without_data({tokens})}, .sample_rows = without_data({samples})};
  if (memory_ != nullptr) batch.places.table = without_data({tokens, (limits_.max_context + kPageTokens - 1) / kPageTokens});
  ops_.begin_plan();
  forward(batch, context);
  return ops_.end_plan();
}

std::vector<Ops::Call> StepRunner::plan(std::int64_t tokens, std::int64_t context) {
  CHECK(tokens <= limits_.max_tokens && context <= limits_.max_context);
  if (step_ != nullptr) step_->forget_recorded();  // the workspace may move
  return plan_step(tokens, 1, context);
}

StepOutput StepRunner::run(const Batch& batch, Recording recording) {
  CHECK(batch.tokens.dim(0) >= 1 && batch.tokens.dim(0) <= limits_.max_tokens);
  CHECK(batch.sample_rows.dim(0) <= limits_.max_samples);
  StepOutput output = step_ == nullptr ? forward(batch, limits_.max_context) : run_on_device(batch, recording);
  if (ranks_ == nullptr || !output.error.empty()) return output;
  if (const Status status = ranks_->status(); !status.ok()) output.error = status.error().what;
  return output;
}

void StepRunner::inject_fault(std::int32_t place, const Tensor& value) const {
  if (fault.place != place || ops_.planning() || fault.row >= value.dim(0)) return;
  if (step_ != nullptr) return step_->poison(value.rows(fault.row, 1));
  value.rows(fault.row, 1).f32()[0] = std::numeric_limits<float>::quiet_NaN();
}

void StepRunner::mark_clean(const Tensor& first_bad) const {
  static_assert(Guard::kClean == -1, "all bits set: a fill by bytes");
  if (memory_ == nullptr) {
    std::fill_n(first_bad.i32(), first_bad.dim(0), Guard::kClean);
  } else {
    memory_->fill(ops_.stream(), first_bad.data, 0xff, first_bad.bytes());
  }
}

StepOutput StepRunner::forward(const Batch& batch, std::int64_t max_context) {
  const ModelConfig& c = model_.config;
  const ModelWeights& w = weights_;
  const Taps seen = step_ != nullptr && taps ? host_taps() : taps;
  const std::int64_t tokens = batch.tokens.dim(0);
  const Arena::Scope scope(arena_);
  Forward f{.config = c,
            .batch = batch,
            .ops = ops_,
            .scratch = arena_,
            .taps = seen,
            .cache = cache_,
            .ranks = ranks_,
            .precision = precision_,
            .max_context = max_context,
            .cosine = arena_.f32({tokens, frequencies_.dim(0)}),
            .sine = arena_.f32({tokens, frequencies_.dim(0)})};
  const StepOutput output{.logits = arena_.f32({batch.sample_rows.dim(0), w.lm_head.rows}),
                          .first_bad = arena_.i32({tokens}),
                          .rms = arena_.f32({GuardPlace::count(c.num_hidden_layers), tokens})};
  if (!ops_.planning()) mark_clean(output.first_bad);
  Selection selection;
  if (c.is_sparse_attention()) selection = {.counts = arena_.i32({tokens}), .positions = arena_.i32({tokens, c.index_topk})};

  const Tensor hidden = arena_.f32({tokens, c.hidden_size});  // the residual stream
  const Tensor normalised = arena_.f32({tokens, c.hidden_size});
  const auto norm = [&](const Tensor& add, const Tensor& weight, std::int32_t produced_by) {
    if (add.shape.rank() != 0) inject_fault(produced_by, add);
    ops_(RmsNormArgs{
        .x = hidden,
        .add = add,
        .weight = weight,
        .epsilon = static_cast<float>(c.rms_norm_eps),
        .y = normalised,
        .guard = {.first_bad = output.first_bad, .rms = output.rms.rows(produced_by, 1).reshaped({tokens}), .place = produced_by}});
  };

  ops_.place = {.layer = -1, .block = "embedding"};
  ops_(RopeAnglesArgs{.positions = batch.places.positions, .frequencies = frequencies_, .cosine = f.cosine, .sine = f.sine});
  ops_(EmbedArgs{.tokens = batch.tokens, .table = w.embed, .y = hidden});
  Tensor branch;  // [tokens, hidden]: what the last block returned, added to `hidden` by the next norm
  std::int32_t produced_by = GuardPlace::kEmbedding;
  for (std::int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const LayerWeights& weights = w.layers[static_cast<std::size_t>(layer)];
    ops_.place = {.layer = layer, .block = "input_norm"};
    norm(branch, weights.input_norm, produced_by);
    f.tap("hidden", layer, hidden);
    // Blocks return tensors in scratch; the previous one was consumed by the norm, so its memory is free again.
    const Arena::Scope attention_scope(arena_);
    f.enter("attention");
    branch = c.is_mla() ? mla_attention(f, weights, layer, normalised, c.is_sparse_attention() ? &selection : nullptr)
                        : grouped_attention(f, weights, layer, normalised);
    f.add_ranks(branch);
    f.tap("attention", layer, branch);
    f.enter("post_attention_norm");
    norm(branch, weights.post_attention_norm, GuardPlace::attention(layer));
    f.enter("mlp");
    branch = c.mlp_kinds[static_cast<std::size_t>(layer)] == MlpKind::sparse ? moe(f, weights.moe, layer, normalised)
                                                                             : mlp(f, weights.mlp, normalised);
    f.add_ranks(branch);
    f.tap("feed_forward", layer, branch);
    produced_by = GuardPlace::feed_forward(layer);
  }
  ops_.place = {.layer = -1, .block = "head"};
  norm(branch, w.final_norm, produced_by);
  f.tap("hidden", c.num_hidden_layers, normalised);

  if (batch.sample_rows.dim(0) == 0) return output;  // a chunk from the middle of a prompt
  const Tensor sampled = arena_.f32({batch.sample_rows.dim(0), c.hidden_size});
  ops_(GatherRowsArgs{.x = normalised, .rows = batch.sample_rows, .y = sampled});
  ops_(LinearArgs{.x = sampled, .w = w.lm_head, .y = output.logits, .precision = precision_});
  return output;
}

}  // namespace reckoner
