// attend_latent on CPUs: an online softmax over blocks of 64 cache rows, 16 heads along the vector, split over long sequences.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner {

std::vector<Kernel<AttendLatentArgs>> attend_latent_kernels();

}  // namespace reckoner
