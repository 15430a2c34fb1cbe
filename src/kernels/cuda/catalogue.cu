// The list of CUDA kernels: one line for the kernels of each op.
#include "kernels/cuda/catalogue.h"

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/latent/latent.h"
#include "kernels/cuda/linear/gated.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/rows/rows.h"

namespace reckoner {

Catalogue cuda_catalogue() {
  Catalogue catalogue;
  catalogue.of<LinearArgs>() = cuda::linear_kernels();
  catalogue.of<LinearExpertsArgs>() = cuda::linear_experts_kernels();
  catalogue.of<LinearGroupArgs>() = cuda::linear_group_kernels();
  catalogue.of<LatentQueryArgs>() = cuda::latent_query_kernels();
  catalogue.of<LatentValueArgs>() = cuda::latent_value_kernels();
  catalogue.of<AttendLatentArgs>() = cuda::attend_latent_kernels();
  catalogue.of<AttendGroupedArgs>() = cuda::attend_grouped_kernels();
  catalogue.of<IndexSelectArgs>() = cuda::index_select_kernels();
  catalogue.of<EmbedArgs>() = cuda::embed_kernels();
  catalogue.of<RmsNormArgs>() = cuda::rms_norm_kernels();
  catalogue.of<RopeAnglesArgs>() = cuda::rope_angles_kernels();
  catalogue.of<RopeHeadsArgs>() = cuda::rope_heads_kernels();
  catalogue.of<StoreLatentArgs>() = cuda::store_latent_kernels();
  catalogue.of<StoreIndexKeyArgs>() = cuda::store_index_key_kernels();
  catalogue.of<StoreRowsArgs>() = cuda::store_rows_kernels();
  catalogue.of<RotateAndStoreArgs>() = cuda::rotate_and_store_kernels();
  catalogue.of<SiluMulArgs>() = cuda::silu_mul_kernels();
  catalogue.of<AddBiasArgs>() = cuda::add_bias_kernels();
  catalogue.of<RouteArgs>() = cuda::route_kernels();
  catalogue.of<CombineArgs>() = cuda::combine_kernels();
  catalogue.of<GatherRowsArgs>() = cuda::gather_rows_kernels();
  catalogue.of<GatedLinearArgs>() = cuda::gated_linear_kernels();
  catalogue.of<GatedExpertsArgs>() = cuda::gated_experts_kernels();
  catalogue.of<ExpertsCombineArgs>() = cuda::experts_combine_kernels();
  return catalogue;
}

}  // namespace reckoner
