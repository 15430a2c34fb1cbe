// linear in `exact` for matrices of a few hundred rows, as a router's: float products and sums, two rows a block, so that all of the device
// reads them. Sums do not depend on how many tokens there are.
#include "kernels/cuda/linear/exact_rows.cuh"
#include "kernels/cuda/linear/linear.h"

namespace reckoner::cuda {
namespace {

// Wider ones have blocks enough for tensor cores.
constexpr std::int64_t kMostRows = 512;

template <QuantFormat kFormat, int kRows, int kTokens>
__global__ void __launch_bounds__(kExactThreads) linear_exact_kernel(DeviceWeight w, const float* x, float* y, std::int64_t tokens) {
  __shared__ float scratch[kExactWarps][kRows * kTokens];
  const std::int64_t first = std::int64_t{blockIdx.y} * kTokens;
  const int count = static_cast<int>(min(static_cast<long long>(tokens - first), static_cast<long long>(kTokens)));
  exact_rows<kFormat, kRows, kTokens, kRows == 8 ? 1 : 3>(w, static_cast<int>(blockIdx.x) * kRows, x + first * w.cols, count, scratch,
                                                          y + first * w.rows);
}

template <QuantFormat kFormat, int kRows, int kTokens>
void launch_exact(const LinearArgs& args, Lane& lane) {
  const std::int64_t tokens = args.x.dim(0);
  const dim3 grid(blocks_for(args.w.rows, kRows), blocks_for(tokens, kTokens));
  launch(linear_exact_kernel<kFormat, kRows, kTokens>, grid, kExactThreads, 0, stream_of(lane), device_weight(args.w), args.x.f32(),
         args.y.f32(), tokens);
}

template <QuantFormat kFormat>
void run_format(const LinearArgs& args, Lane& lane) {
  const std::int64_t tokens = args.x.dim(0);
  if (tokens == 1) return launch_exact<kFormat, 2, 1>(args, lane);
  if (tokens <= 4) return launch_exact<kFormat, 2, 4>(args, lane);
  if (tokens > 16) return launch_exact<kFormat, 8, 8>(args, lane);  // reads tokens less often
  launch_exact<kFormat, kFormat == QuantFormat::f32 ? 2 : 4, 8>(args, lane);
}

}  // namespace

bool is_plain(QuantFormat format) { return format == QuantFormat::bf16 || format == QuantFormat::f16 || format == QuantFormat::f32; }

bool fits_exact_rows(const Weight& w) { return is_plain(w.format) && w.rows <= kMostRows && w.cols % 8 == 0; }

void run_linear_exact(const LinearArgs& args, Lane& lane) {
  if (args.w.format == QuantFormat::bf16) return run_format<QuantFormat::bf16>(args, lane);
  if (args.w.format == QuantFormat::f16) return run_format<QuantFormat::f16>(args, lane);
  run_format<QuantFormat::f32>(args, lane);
}

}  // namespace reckoner::cuda
