// Sums over the GPUs of this machine through NCCL, which is opened when it is wanted: libnccl.so.2 on the library path, or what
// RECKONER_NCCL_LIBRARY names.
#pragma once

#include "kernels/cuda/backend.h"

namespace reckoner {

Result<RankLinks> connect_by_nccl(const std::vector<int>& devices);
Status all_reduce_by_nccl(int device, RankLink link, Stream stream, std::byte* values, std::int64_t count);
Status disconnect_nccl(int device, RankLink link);

}  // namespace reckoner
