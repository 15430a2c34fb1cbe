// linear and linear_experts for any shape and format: a warp per four rows, float sums.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/linear/dot_tile.cuh"
#include "kernels/cuda/linear/expert_tiles.cuh"
#include "kernels/cuda/linear/linear.h"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = kTileWarps * 32;
constexpr int kBlockRows = kTileWarps * kTileRows;

__device__ std::int64_t warp_first_row() { return std::int64_t{blockIdx.x} * kBlockRows + threadIdx.x / 32 * kTileRows; }

template <QuantFormat kFormat, int kTokens>
__global__ void __launch_bounds__(kThreads, 2) linear_kernel(DeviceWeight w, const float* x, float* y, std::int64_t tokens) {
  begin_kernel();
  const std::int64_t first = std::int64_t{blockIdx.y} * kTokens;
  const int count = static_cast<int>(min(static_cast<long long>(tokens - first), static_cast<long long>(kTokens)));
  const float* inputs[kTokens];
  float* outputs[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const std::int64_t token = first + (t < count ? t : 0);
    inputs[t] = x + token * w.cols;
    outputs[t] = y + token * w.rows;
  }
  if (warp_first_row() < w.rows) dot_tile<kFormat, kTokens>(w, warp_first_row(), w.rows, inputs, outputs, count);
}

template <int kTokens>
void launch_linear(const LinearArgs& args, Lane& lane) {
  const std::int64_t tokens = args.x.dim(0);
  const dim3 grid(blocks_for(args.w.rows, kBlockRows), blocks_for(tokens, kTokens));
  for_format(args.w.format, [&]<QuantFormat kFormat>() {
    launch(linear_kernel<kFormat, kTokens>, grid, kThreads, 0, stream_of(lane), device_weight(args.w), args.x.f32(), args.y.f32(), tokens);
  });
}

void run_linear(const LinearArgs& args, Lane& lane) {
  if (args.x.dim(0) == 1) {
    launch_linear<1>(args, lane);
  } else {
    launch_linear<kTileTokens>(args, lane);
  }
}

template <QuantFormat kFormat, int kTokens>
__global__ void __launch_bounds__(kThreads)
    linear_experts_kernel(const __grid_constant__ DeviceExperts experts, const std::int32_t* begin, const std::int32_t* tokens,
                          LinearExpertsArgs::Rows rows, const float* x, float* y) {
  begin_kernel();
  __shared__ ExpertTile shared;
  const ExpertTile tile = find_expert_tile(begin, experts.count, kTokens, static_cast<int>(blockIdx.y), shared);
  if (tile.expert < 0 || warp_first_row() >= experts.first.rows) return;
  const DeviceWeight w = expert_weight(experts, tile.expert);
  const float* inputs[kTokens];
  float* outputs[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const std::int64_t slot = tile.first + (t < tile.count ? t : 0);
    inputs[t] = x + (rows == LinearExpertsArgs::Rows::by_token ? std::int64_t{tokens[slot]} : slot) * w.cols;
    outputs[t] = y + slot * w.rows;
  }
  dot_tile<kFormat, kTokens>(w, warp_first_row(), w.rows, inputs, outputs, tile.count);
}

template <int kTokens>
void launch_linear_experts(const LinearExpertsArgs& args, Lane& lane) {
  const std::int64_t slots = args.y.dim(0);
  const DeviceExperts experts = device_experts(args.experts);
  const dim3 grid(blocks_for(experts.first.rows, kBlockRows), static_cast<unsigned>(most_expert_tiles(slots, experts.count, kTokens)));
  for_format(args.experts.front().format, [&]<QuantFormat kFormat>() {
    launch(linear_experts_kernel<kFormat, kTokens>, grid, kThreads, 0, stream_of(lane), experts, args.slots.begin.i32(),
           args.slots.tokens.i32(), args.rows, args.x.f32(), args.y.f32());
  });
}

// Few slots a expert: most tiles hold one.
void run_linear_experts(const LinearExpertsArgs& args, Lane& lane) {
  if (args.y.dim(0) <= std::ssize(args.experts)) {
    launch_linear_experts<1>(args, lane);
  } else {
    launch_linear_experts<kTileTokens>(args, lane);
  }
}

}  // namespace

Kernel<LinearArgs> linear_generic() { return {"linear.cuda", supports_any<>, no_workspace<LinearArgs>, run_linear}; }
Kernel<LinearExpertsArgs> linear_experts_generic() {
  return {"linear_experts.cuda", supports_any<sizeof(ExpertTile)>, no_workspace<LinearExpertsArgs>, run_linear_experts};
}

}  // namespace reckoner::cuda
