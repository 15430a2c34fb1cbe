// StepRunner on a device: the same forward pass, between a copy in and a copy back, recorded where that pays.
#include "model/forward.h"

namespace reckoner {
namespace {

// The first kind of row that the layout has: where it lies tells whether the cache moved.
const std::byte* base_of(const KvLayout& layout) {
  return layout.latent.empty() ? layout.keys.empty() ? nullptr : layout.keys.front().base : layout.latent.front().base;
}

}  // namespace

void StepRunner::use_cache(const KvLayout& layout) {
  if (step_ != nullptr && base_of(layout) != base_of(cache_)) step_->forget_recorded();
  cache_ = layout;
}

// What a step of the largest size reports, each tensor aligned as the arena does.
std::int64_t StepRunner::output_bytes() const {
  const auto aligned = [](std::int64_t elements) { return (elements * 4 + 255) / 256 * 256; };
  return aligned(limits_.max_samples * weights_.lm_head.rows) + aligned(limits_.max_tokens) +
         aligned(GuardPlace::count(model_.config.num_hidden_layers) * limits_.max_tokens);
}

// Taps that bring each value to the host first.
Taps StepRunner::host_taps() {
  return [this](std::string_view name, std::int64_t layer, const Tensor& value) {
    const Tensor here = step_->read(value);
    if (memory_->status().ok()) taps(name, layer, here);
  };
}

std::int64_t StepRunner::recordable_steps(std::int64_t rows) const {
  return step_ == nullptr || rows > DeviceStep::kMaxRecordedRows ? 0 : step_->recorded(rows).uses;
}

void StepRunner::forget_recorded() {
  if (step_ != nullptr) step_->forget_recorded();
}

StepOutput StepRunner::run_on_device(const Batch& batch, Recording recording) {
  CHECK(ops_.status().ok(), "a step although status() was an error");
  const Batch on_device = step_->stage(batch);
  const std::int64_t rows = batch.tokens.dim(0);
  // What looks into a step, or changes it, is no part of what is recorded.
  const bool plain = !is_watched() && fault.place == Guard::kClean && recording == Recording::allowed;
  const bool all_sampled = batch.sample_rows.dim(0) == rows && rows <= DeviceStep::kMaxRecordedRows;
  const bool recorded = records_steps() && plain && all_sampled;
  return step_->receive(recorded ? enqueue_recorded(on_device) : enqueue(on_device));
}

StepOutput StepRunner::enqueue(const Batch& on_device) {
  step_->send();
  const StepOutput output = forward(on_device, limits_.max_context);
  step_->fetch(output);
  return output;
}

StepOutput StepRunner::enqueue_recorded(const Batch& on_device) {
  DeviceStep::Recorded& recorded = step_->recorded(on_device.tokens.dim(0));
  // The first time as it is: kernels that are used for the first time may have to be loaded, which cannot be recorded.
  if (++recorded.uses == 1) return enqueue(on_device);
  if (recorded.graph == nullptr && !record(recorded, on_device)) return enqueue(on_device);
  memory_->launch(recorded.graph, ops_.stream());
  return recorded.output;
}

// Of ranks either all record a step or none does. They begin it together, too: making a graph takes device memory, which must not happen
// while the device of another rank waits for this one.
bool StepRunner::record(DeviceStep::Recorded& recorded, const Batch& on_device) {
  Status begun = memory_->begin_capture(ops_.stream());
  if (begun.ok()) recorded.output = enqueue(on_device);
  Result<DeviceGraph> graph = begun.ok() ? memory_->end_capture(ops_.stream()) : Result<DeviceGraph>(std::move(begun).error());
  const bool all_did =
      ranks_ == nullptr || ranks_->agree(graph.ok() ? Communicator::Vote::yes : Communicator::Vote::no) == Communicator::Vote::yes;
  if (graph.ok() && all_did) {
    recorded.graph = *graph;
    ++recorded_steps_;
    return true;
  }
  recording_failure_ = graph.ok() ? "another rank could not record a step" : graph.error().what;
  if (graph.ok()) memory_->release_graph(*graph);
  return false;
}

}  // namespace reckoner
