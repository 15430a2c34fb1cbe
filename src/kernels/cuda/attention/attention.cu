// The lists of attention kernels.
#include "kernels/cuda/attention/attention.h"

namespace reckoner::cuda {

std::vector<Kernel<AttendLatentArgs>> attend_latent_kernels() { return {attend_latent_generic()}; }
std::vector<Kernel<AttendGroupedArgs>> attend_grouped_kernels() { return {attend_grouped_generic()}; }
std::vector<Kernel<IndexSelectArgs>> index_select_kernels() { return {index_select_generic()}; }

}  // namespace reckoner::cuda
