// The lists of linear kernels.
#include "kernels/cuda/linear/linear.h"

namespace reckoner::cuda {

std::vector<Kernel<LinearArgs>> linear_kernels() { return {linear_generic()}; }
std::vector<Kernel<LinearExpertsArgs>> linear_experts_kernels() { return {linear_experts_generic()}; }

}  // namespace reckoner::cuda
