// The lists of linear kernels. Which of its ways a kernel goes depends on shapes that are known only when it is called.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/chunk.cuh"
#include "kernels/cuda/linear/linear.h"

namespace reckoner::cuda {
namespace {

Support supports_mma(const Key& key, const DeviceInfo& device) {
  if (!has_chunks(key.format)) return {.yes = false, .reason = "has no tensor core operands for this format"};
  return supports_portable(device);
}

void run_linear_mma(const LinearArgs& args, Lane& lane) {
  if (!fits_few_rows(args.w)) return linear_generic().run(args, lane);
  run_linear_few(args, lane);
}

void run_linear_experts_mma(const LinearExpertsArgs& args, Lane& lane) {
  if (!fits_few_rows(args.experts.front())) return linear_experts_generic().run(args, lane);
  run_linear_experts_few(args, lane);
}

}  // namespace

std::vector<Kernel<LinearArgs>> linear_kernels() {
  return {{"linear.mma.cuda", supports_mma, no_workspace<LinearArgs>, run_linear_mma}, linear_generic()};
}

std::vector<Kernel<LinearExpertsArgs>> linear_experts_kernels() {
  return {{"linear_experts.mma.cuda", supports_mma, no_workspace<LinearExpertsArgs>, run_linear_experts_mma}, linear_experts_generic()};
}

}  // namespace reckoner::cuda
