// How the GPUs of this machine add up what their ranks have: small sums straight between them, where that works, the others over NCCL.
#pragma once

#include "kernels/cuda/backend.h"

namespace reckoner {

Result<RankLinks> connect_gpus(const std::vector<int>& devices);
Status add_over_gpus(int device, RankLink link, Stream stream, std::byte* values, std::int64_t count);
Status disconnect_gpu(int device, RankLink link);

}  // namespace reckoner
