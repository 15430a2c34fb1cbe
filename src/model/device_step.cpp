#include "model/device_step.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace reckoner {
namespace {

std::int64_t aligned(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// The same tensor where the device's bytes from `first` on were copied to.
Tensor moved(const Tensor& tensor, const std::byte* first, std::byte* copy) {
  Tensor here = tensor;
  here.data = copy + (tensor.data - first);
  return here;
}

}  // namespace

DeviceStep::Layout DeviceStep::layout_for(const StepLimits& limits) {
  constexpr std::int64_t kId = sizeof(std::int32_t);
  Layout layout{};
  layout.positions = aligned(limits.max_tokens * kId);
  layout.sample_rows = layout.positions + aligned(limits.max_tokens * kId);
  layout.table = layout.sample_rows + aligned(limits.max_samples * kId);
  layout.table_width = (limits.max_context + kPageTokens - 1) / kPageTokens;
  layout.bytes = layout.table + limits.max_tokens * layout.table_width * kId;
  return layout;
}

DeviceStep::DeviceStep(DeviceMemory& memory, Stream stream, const StepLimits& limits, std::int64_t output_bytes)
    : memory_(memory),
      stream_(stream),
      layout_(layout_for(limits)),
      input_host_(layout_.bytes, &memory, BufferKind::pinned),
      input_(layout_.bytes, &memory),
      output_host_(output_bytes, &memory, BufferKind::pinned),
      nan_(sizeof(float), &memory, BufferKind::pinned),
      recorded_(static_cast<std::size_t>(kMaxRecordedRows) + 1) {
  if (!memory.status().ok()) return;
  std::memset(input_host_.data(), 0, static_cast<std::size_t>(layout_.bytes));
  *nan_.tensor(DType::f32, {1}).f32() = std::numeric_limits<float>::quiet_NaN();
}

DeviceStep::~DeviceStep() {
  memory_.synchronise(stream_);
  forget_recorded();
}

void DeviceStep::forget_recorded() {
  for (Recorded& recorded : recorded_) {
    if (recorded.graph != nullptr) memory_.release_graph(recorded.graph);
    recorded = {};
  }
}

Batch DeviceStep::stage(const Batch& host) {
  CHECK(input_host_.data() != nullptr && output_host_.data() != nullptr, "a step although status() was an error");
  const std::int64_t tokens = host.tokens.dim(0);
  const std::int64_t samples = host.sample_rows.dim(0);
  const auto put = [&](std::int64_t offset, const Tensor& values) {
    std::memcpy(input_host_.data() + offset, values.data, static_cast<std::size_t>(values.bytes()));
    return input_.tensor(DType::i32, values.shape, offset);
  };
  Batch batch{.tokens = put(0, host.tokens),
              .places = {.positions = put(layout_.positions, host.places.positions),
                         .table = input_.tensor(DType::i32, {tokens, layout_.table_width}, layout_.table)},
              .sample_rows = samples > 0 ? put(layout_.sample_rows, host.sample_rows) : host.sample_rows};
  // A table reaches as far as its sequence does; what stands behind that is of earlier steps, and nobody's to read.
  std::int32_t* const table = input_host_.tensor(DType::i32, {tokens, layout_.table_width}, layout_.table).i32();
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::int32_t* const pages = host.places.pages[static_cast<std::size_t>(token)];
    std::copy_n(pages, host.places.positions.i32()[token] / kPageTokens + 1, table + token * layout_.table_width);
  }
  staged_bytes_ = layout_.table + batch.places.table.bytes();
  return batch;
}

void DeviceStep::send() { memory_.copy_in(stream_, input_.data(), input_host_.data(), staged_bytes_); }

void DeviceStep::fetch(const StepOutput& on_device) {
  const std::int64_t bytes = on_device.rms.data + on_device.rms.bytes() - on_device.logits.data;
  CHECK(bytes <= output_host_.size_bytes());
  memory_.copy_out(stream_, output_host_.data(), on_device.logits.data, bytes);
}

StepOutput DeviceStep::receive(const StepOutput& on_device) {
  memory_.synchronise(stream_);
  const std::byte* const first = on_device.logits.data;
  StepOutput output{.logits = moved(on_device.logits, first, output_host_.data()),
                    .first_bad = moved(on_device.first_bad, first, output_host_.data()),
                    .rms = moved(on_device.rms, first, output_host_.data())};
  if (const Status status = memory_.status(); !status.ok()) {
    std::memset(output_host_.data(), 0xff, static_cast<std::size_t>(output_host_.size_bytes()));  // NaN, and -1: Guard::kClean
    output.error = status.error().what;
  }
  return output;
}

void DeviceStep::poison(const Tensor& value) { memory_.copy_in(stream_, value.data, nan_.data(), nan_.size_bytes()); }

Tensor DeviceStep::read(const Tensor& value) {
  if (tap_host_.size_bytes() < value.bytes()) tap_host_ = Buffer(value.bytes(), &memory_, BufferKind::pinned);
  memory_.copy_out(stream_, tap_host_.data(), value.data, value.bytes());
  memory_.synchronise(stream_);
  return tap_host_.tensor(value.dtype, value.shape);
}

}  // namespace reckoner
