// Communicator: how a rank meets the others. A rank is a thread with a part of the model; all do the same steps.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "parallel/share.h"
#include "tensor/device_memory.h"
#include "tensor/tensor.h"

namespace reckoner {

// Ranks call in the same order with tensors of the same shape. A rank that cannot go on cancels: then nobody waits for anybody any more.
class Communicator {
 public:
  enum class Vote : std::uint8_t { yes, no };

  virtual ~Communicator() = default;
  virtual Rank rank() const = 0;

  // Puts the sum over all ranks into `values` (f32), bit by bit the same on each. On a device it is put on the stream.
  virtual void all_reduce(const Tensor& values, Stream stream) = 0;
  // Waits for all ranks, on the host; whether all said yes. No where the ranks were cancelled.
  virtual Vote agree(Vote own) = 0;

  // From now on no rank waits: what is waiting returns, sums are not formed, and status() of each rank is this error (the first one's
  // stays). Any thread may call.
  virtual void cancel(Error why) = 0;
  virtual Status status() const = 0;
};

}  // namespace reckoner
