// The list of CPU kernels: one line for the kernels of each op's folder.
#include "kernels/cpu/catalogue.h"

#include "kernels/cpu/attention/attend.h"
#include "kernels/cpu/attention/index_select.h"
#include "kernels/cpu/latent/latent.h"
#include "kernels/cpu/linear/linear.h"
#include "kernels/cpu/rows/rows.h"

namespace reckoner {

Catalogue cpu_catalogue() {
  Catalogue catalogue;
  catalogue.of<LinearArgs>() = linear_kernels();
  catalogue.of<LinearExpertsArgs>() = linear_experts_kernels();
  catalogue.of<LatentQueryArgs>() = latent_query_kernels();
  catalogue.of<LatentValueArgs>() = latent_value_kernels();
  catalogue.of<AttendLatentArgs>() = attend_latent_kernels();
  catalogue.of<AttendGroupedArgs>() = attend_grouped_kernels();
  catalogue.of<IndexSelectArgs>() = index_select_kernels();
  catalogue.of<EmbedArgs>() = embed_kernels();
  catalogue.of<RmsNormArgs>() = rms_norm_kernels();
  catalogue.of<RopeAnglesArgs>() = rope_angles_kernels();
  catalogue.of<RopeHeadsArgs>() = rope_heads_kernels();
  catalogue.of<StoreLatentArgs>() = store_latent_kernels();
  catalogue.of<StoreIndexKeyArgs>() = store_index_key_kernels();
  catalogue.of<StoreRowsArgs>() = store_rows_kernels();
  catalogue.of<SiluMulArgs>() = silu_mul_kernels();
  catalogue.of<AddBiasArgs>() = add_bias_kernels();
  catalogue.of<RouteArgs>() = route_kernels();
  catalogue.of<CombineArgs>() = combine_kernels();
  catalogue.of<GatherRowsArgs>() = gather_rows_kernels();
  return with_references(std::move(catalogue));
}

}  // namespace reckoner
