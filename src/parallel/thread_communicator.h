// Ranks that share the host's memory.
#pragma once

#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace reckoner {

// One for each rank, in order. Sums are formed in the order of the ranks.
std::vector<std::unique_ptr<Communicator>> thread_communicators(int ranks);

}  // namespace reckoner
