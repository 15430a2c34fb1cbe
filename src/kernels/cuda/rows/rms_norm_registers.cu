// rms_norm of rows of up to 8192 elements in whole pieces of sixteen bytes: a block a row, which it reads once, everything at once, and
// keeps in registers.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/numbers.cuh"
#include "kernels/cuda/rows/rows.h"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kMostOwn = 4;  // pieces of a thread

struct Rows {
  float4* x;
  const float4* add;  // or null
  const float4* weight;
  float4* y;
  std::int32_t* first_bad;  // or null
  float* rms;               // or null
  int pieces;               // of a row
  float epsilon;
  std::int32_t place;
};

__device__ float4 sum_of(const float4& a, const float4& b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

// Thread i has the pieces i, i + kThreads and so on.
template <int kOwn>
__global__ void __launch_bounds__(kThreads) rms_norm_registers_kernel(Rows args) {
  begin_kernel();
  __shared__ float scratch[kThreads / 32];
  const std::int64_t token = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  float4* x = args.x + token * args.pieces;
  float4 values[kOwn], added[kOwn], weights[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int piece = thread + i * kThreads;
    values[i] = added[i] = weights[i] = make_float4(0, 0, 0, 0);
    if (piece >= args.pieces) continue;
    values[i] = x[piece];
    if (args.add != nullptr) added[i] = args.add[token * args.pieces + piece];
    weights[i] = args.weight[piece];
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (args.add != nullptr) values[i] = sum_of(values[i], added[i]);
    sum += values[i].x * values[i].x + values[i].y * values[i].y + values[i].z * values[i].z + values[i].w * values[i].w;
  }
  const float squares = block_sum<kThreads>(sum, scratch);
  const float mean = squares / static_cast<float>(args.pieces * 4);
  if (thread == 0) {
    if (args.first_bad != nullptr && !isfinite(squares) && args.first_bad[token] == Guard::kClean) args.first_bad[token] = args.place;
    if (args.rms != nullptr) args.rms[token] = sqrtf(mean);
  }
  const float inverse = 1.0f / sqrtf(mean + args.epsilon);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int piece = thread + i * kThreads;
    if (piece >= args.pieces) continue;
    const float4 value = values[i], weight = weights[i];
    if (args.add != nullptr) x[piece] = value;
    args.y[token * args.pieces + piece] =
        make_float4(value.x * inverse * weight.x, value.y * inverse * weight.y, value.z * inverse * weight.z, value.w * inverse * weight.w);
  }
}

// Nothing, or rows of whole pieces.
bool is_aligned(const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0; }

bool fits_registers(const RmsNormArgs& args) {
  const std::int64_t width = args.x.dim(1);
  return width % 4 == 0 && width <= kMostOwn * kThreads * 4 && is_aligned(args.x) && is_aligned(args.add) && is_aligned(args.weight) &&
         is_aligned(args.y);
}

void run(const RmsNormArgs& args, Lane& lane) {
  if (!fits_registers(args)) return rms_norm_generic().run(args, lane);
  const Rows rows{.x = reinterpret_cast<float4*>(args.x.f32()),
                  .add = args.add.empty() ? nullptr : reinterpret_cast<const float4*>(args.add.f32()),
                  .weight = reinterpret_cast<const float4*>(args.weight.f32()),
                  .y = reinterpret_cast<float4*>(args.y.f32()),
                  .first_bad = args.guard.first_bad.empty() ? nullptr : args.guard.first_bad.i32(),
                  .rms = args.guard.rms.empty() ? nullptr : args.guard.rms.f32(),
                  .pieces = static_cast<int>(args.x.dim(1) / 4),
                  .epsilon = args.epsilon,
                  .place = args.guard.place};
  const auto tokens = static_cast<unsigned>(args.x.dim(0));
  const cudaStream_t stream = stream_of(lane);
  switch ((rows.pieces + kThreads - 1) / kThreads) {
    case 1:
      return launch(rms_norm_registers_kernel<1>, tokens, kThreads, 0, stream, rows);
    case 2:
      return launch(rms_norm_registers_kernel<2>, tokens, kThreads, 0, stream, rows);
    case 3:
      return launch(rms_norm_registers_kernel<3>, tokens, kThreads, 0, stream, rows);
    default:
      return launch(rms_norm_registers_kernel<4>, tokens, kThreads, 0, stream, rows);
  }
}

}  // namespace

Kernel<RmsNormArgs> rms_norm_registers() {
  return {"rms_norm.registers.cuda", supports_any<kThreads / 32 * 4>, no_workspace<RmsNormArgs>, run};
}

}  // namespace reckoner::cuda
