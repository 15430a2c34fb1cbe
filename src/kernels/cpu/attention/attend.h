// attend_latent and attend_grouped on CPUs: an online softmax over blocks of 64 cache rows, 16 heads along the vector, split over long
// sequences. One driver and one set of kernels: the latent cache is one head of keys whose beginnings are the values.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner {

std::vector<Kernel<AttendLatentArgs>> attend_latent_kernels();
std::vector<Kernel<AttendGroupedArgs>> attend_grouped_kernels();

}  // namespace reckoner
