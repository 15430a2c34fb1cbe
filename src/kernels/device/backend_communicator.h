// Ranks on devices of one backend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/backend.h"
#include "parallel/communicator.h"

namespace reckoner {

struct ConnectedRanks {
  std::vector<std::unique_ptr<Communicator>> communicators;  // in the order of the devices
  std::string library;                                       // "NCCL 2.27.7"
};

// Sums are put on the streams and formed by the devices. `backend` must outlive the communicators.
Result<ConnectedRanks> connect_ranks(const DeviceBackend& backend, const std::vector<int>& devices);

}  // namespace reckoner
