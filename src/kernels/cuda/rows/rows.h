// The ops that map, move, normalise, rotate, store and route rows, on CUDA devices.
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace reckoner::cuda {

std::vector<Kernel<EmbedArgs>> embed_kernels();
std::vector<Kernel<GatherRowsArgs>> gather_rows_kernels();
std::vector<Kernel<SiluMulArgs>> silu_mul_kernels();
std::vector<Kernel<AddBiasArgs>> add_bias_kernels();
std::vector<Kernel<CombineArgs>> combine_kernels();
std::vector<Kernel<RmsNormArgs>> rms_norm_kernels();
Kernel<RmsNormArgs> rms_norm_generic();
Kernel<RmsNormArgs> rms_norm_registers();  // up to 8192 elements; else as the generic one
std::vector<Kernel<RopeAnglesArgs>> rope_angles_kernels();
std::vector<Kernel<RopeHeadsArgs>> rope_heads_kernels();
std::vector<Kernel<StoreLatentArgs>> store_latent_kernels();
std::vector<Kernel<StoreIndexKeyArgs>> store_index_key_kernels();
std::vector<Kernel<StoreRowsArgs>> store_rows_kernels();
std::vector<Kernel<RotateAndStoreArgs>> rotate_and_store_kernels();
std::vector<Kernel<RouteArgs>> route_kernels();

}  // namespace reckoner::cuda
