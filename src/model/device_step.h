// DeviceStep: how a step gets to a device and back: fixed places for what goes in and comes out, and steps that were recorded.
#pragma once

#include <cstdint>
#include <vector>

#include "model/step.h"
#include "tensor/device_memory.h"

namespace reckoner {

// Everything that a step reads lies in one piece of pinned memory and goes over in one copy; what it reports comes back in another. The
// places never move, so that a recorded step can be done again with other contents.
class DeviceStep {
 public:
  // `output_bytes`: at least what fetch() will be given.
  DeviceStep(DeviceMemory& memory, Stream stream, const StepLimits& limits, std::int64_t output_bytes);
  ~DeviceStep();
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;

  // Copies the batch into pinned memory, and returns it as the device will see it after send(). The step before has come back.
  Batch stage(const Batch& host);
  void send();
  // Puts the copy of a step's results on the stream. They lie one behind the other, logits first, rms last.
  void fetch(const StepOutput& on_device);
  // Waits, and returns the results in the host's memory: valid until the next fetch(). When the device failed, the logits and rms are NaN.
  StepOutput receive(const StepOutput& on_device);

  // Puts NaN into one float.
  void poison(const Tensor& value);
  // The value in the host's memory, valid until the next call. Waits.
  Tensor read(const Tensor& value);
  // Memory for values of up to this size; otherwise read() takes it when it has to.
  void reserve_taps(std::int64_t bytes) { tap_host_ = Buffer(bytes, &memory_, BufferKind::pinned); }

  // A step of `rows` rows, all sampled, as it was recorded.
  struct Recorded {
    std::int64_t uses = 0;
    DeviceGraph graph = nullptr;
    StepOutput output;  // on the device
  };
  static constexpr std::int64_t kMaxRecordedRows = 256;
  Recorded& recorded(std::int64_t rows) { return recorded_[static_cast<std::size_t>(rows)]; }
  // When what was recorded no longer holds: the cache or the workspace moved.
  void forget_recorded();

 private:
  struct Layout {
    std::int64_t positions, sample_rows, table;  // byte offsets; tokens come first
    std::int64_t table_width;                    // pages of the longest sequence
    std::int64_t bytes;
  };
  static Layout layout_for(const StepLimits& limits);

  DeviceMemory& memory_;
  Stream stream_;
  Layout layout_;
  Buffer input_host_;
  Buffer input_;
  Buffer output_host_;
  Buffer tap_host_;
  Buffer nan_;  // one float, pinned
  std::int64_t staged_bytes_ = 0;
  std::vector<Recorded> recorded_;  // by rows
};

}  // namespace reckoner
