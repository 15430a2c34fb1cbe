// The lists of attention kernels. Which of its ways a kernel goes depends on shapes that are known only when it is called.
#include "kernels/cuda/attention/attention.h"

#include "kernels/cuda/common/launch.cuh"

namespace reckoner::cuda {
namespace {

std::int64_t latent_workspace(const AttendLatentArgs& args, int threads) {
  return fits_latent_mma(args) ? latent_mma_workspace(args) : attend_latent_generic().workspace_bytes(args, threads);
}

std::int64_t gather_workspace(const AttendLatentArgs& args, int threads) {
  return fits_latent_gather(args) ? latent_gather_workspace(args) : latent_workspace(args, threads);
}

template <CombinePieces* kCombine>
void run_latent(const AttendLatentArgs& args, Lane& lane) {
  if (!fits_latent_mma(args)) return attend_latent_generic().run(args, lane);
  run_attend_latent_mma(args, kCombine, lane);
}

void run_gather(const AttendLatentArgs& args, Lane& lane) {
  if (!fits_latent_gather(args)) return run_latent<combine_pieces_at_once>(args, lane);
  run_attend_latent_gather(args, lane);
}

}  // namespace

std::vector<Kernel<AttendLatentArgs>> attend_latent_kernels() {
  return {{"attend_latent.gather.cuda", supports_any<kPortableSharedBytes>, gather_workspace, run_gather},
          {"attend_latent.mma.at_once.cuda", supports_any<kPortableSharedBytes>, latent_workspace, run_latent<combine_pieces_at_once>},
          {"attend_latent.mma.cuda", supports_any<kPortableSharedBytes>, latent_workspace, run_latent<combine_pieces>},
          attend_latent_generic()};
}
std::vector<Kernel<AttendGroupedArgs>> attend_grouped_kernels() { return {attend_grouped_generic()}; }
std::vector<Kernel<IndexSelectArgs>> index_select_kernels() { return {index_select_split(), index_select_generic()}; }

}  // namespace reckoner::cuda
