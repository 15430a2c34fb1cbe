// embed, gather_rows, silu_mul, add_bias, combine and rms_norm for any shape.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/weights.cuh"
#include "kernels/cuda/rows/rows.h"

namespace reckoner::cuda {
namespace {

constexpr int kThreads = 256;

// ---- embed ----

// A thread takes eight elements of a row.
template <QuantFormat kFormat>
__global__ void embed_kernel(const std::int32_t* tokens, DeviceWeight table, float* y) {
  begin_kernel();
  const std::int64_t token = blockIdx.x;
  const std::int64_t row = tokens[token];
  for (std::int64_t first = threadIdx.x * 8; first < table.cols; first += kThreads * 8) {
    float values[8];
    load_eight<kFormat>(table, row, first, values);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (first + i < table.cols) y[token * table.cols + first + i] = values[i];
    }
  }
}

void run_embed(const EmbedArgs& args, Lane& lane) {
  const auto tokens = static_cast<unsigned>(args.tokens.dim(0));
  for_format(args.table.format, [&]<QuantFormat kFormat>() {
    launch(embed_kernel<kFormat>, tokens, kThreads, 0, stream_of(lane), args.tokens.i32(), device_weight(args.table), args.y.f32());
  });
}

// ---- element by element ----

__global__ void gather_rows_kernel(const float* x, const std::int32_t* rows, float* y, std::int64_t width) {
  begin_kernel();
  const std::int64_t from = rows[blockIdx.x];
  const std::int64_t to = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) y[to * width + i] = x[from * width + i];
}

void run_gather_rows(const GatherRowsArgs& args, Lane& lane) {
  launch(gather_rows_kernel, static_cast<unsigned>(args.rows.dim(0)), kThreads, 0, stream_of(lane), args.x.f32(), args.rows.i32(),
         args.y.f32(), args.x.dim(1));
}

__global__ void silu_mul_kernel(const float* gate, const float* up, float* y, std::int64_t count) {
  begin_kernel();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const float g = gate[i];
  y[i] = g / (1.0f + expf(-g)) * up[i];
}

void run_silu_mul(const SiluMulArgs& args, Lane& lane) {
  const std::int64_t count = args.y.shape.elements();
  launch(silu_mul_kernel, blocks_for(count, kThreads), kThreads, 0, stream_of(lane), args.gate.f32(), args.up.f32(), args.y.f32(), count);
}

__global__ void add_bias_kernel(float* x, const float* bias, std::int64_t count, std::int64_t width) {
  begin_kernel();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) x[i] += bias[i % width];
}

void run_add_bias(const AddBiasArgs& args, Lane& lane) {
  const std::int64_t count = args.x.shape.elements();
  launch(add_bias_kernel, blocks_for(count, kThreads), kThreads, 0, stream_of(lane), args.x.f32(), args.bias.f32(), count, args.x.dim(1));
}

// ---- combine ----

// Products and sums are rounded one by one, in the order of k, as the reference does.
__global__ void combine_kernel(const float* rows, const float* weights, const std::int32_t* slot_of, const float* shared, float* y,
                               int top_k, std::int64_t width) {
  begin_kernel();
  const std::int64_t token = blockIdx.y;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= width) return;
  float sum = shared == nullptr ? 0.0f : shared[token * width + i];
  for (int k = 0; k < top_k; ++k) {
    const std::int64_t slot = slot_of[token * top_k + k];
    sum = __fadd_rn(sum, __fmul_rn(weights[token * top_k + k], rows[slot * width + i]));
  }
  y[token * width + i] = sum;
}

void run_combine(const CombineArgs& args, Lane& lane) {
  const std::int64_t width = args.rows.dim(1);
  const dim3 grid(blocks_for(width, kThreads), static_cast<unsigned>(args.weights.dim(0)));
  launch(combine_kernel, grid, kThreads, 0, stream_of(lane), args.rows.f32(), args.weights.f32(), args.slot_of.i32(),
         args.shared.empty() ? nullptr : args.shared.f32(), args.y.f32(), static_cast<int>(args.weights.dim(1)), width);
}

// ---- rms_norm ----

struct RmsNormRows {
  float* x;
  const float* add;  // or null
  const float* weight;
  float* y;
  std::int32_t* first_bad;  // or null
  float* rms;               // or null
  std::int64_t width;
  float epsilon;
  std::int32_t place;
};

constexpr int kAtOnce = 8;  // elements that a thread has under way

// A block a row. x is read a second time: from the cache.
__global__ void rms_norm_kernel(RmsNormRows args) {
  begin_kernel();
  __shared__ float scratch[kThreads / 32];
  const std::int64_t token = blockIdx.x;
  float* x = args.x + token * args.width;
  const float* add = args.add == nullptr ? nullptr : args.add + token * args.width;
  float sum = 0;
  for (std::int64_t first = threadIdx.x; first < args.width; first += kThreads * kAtOnce) {
    float values[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const std::int64_t i = first + j * kThreads;
      values[j] = i >= args.width ? 0.0f : add == nullptr ? x[i] : x[i] + add[i];
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const std::int64_t i = first + j * kThreads;
      if (add != nullptr && i < args.width) x[i] = values[j];
      sum += values[j] * values[j];
    }
  }
  const float squares = block_sum<kThreads>(sum, scratch);
  const float mean = squares / static_cast<float>(args.width);
  if (threadIdx.x == 0) {
    if (args.first_bad != nullptr && !isfinite(squares) && args.first_bad[token] == Guard::kClean) args.first_bad[token] = args.place;
    if (args.rms != nullptr) args.rms[token] = sqrtf(mean);
  }
  const float inverse = 1.0f / sqrtf(mean + args.epsilon);
  float* y = args.y + token * args.width;
  for (std::int64_t first = threadIdx.x; first < args.width; first += kThreads * kAtOnce) {
    float values[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const std::int64_t i = first + j * kThreads;
      values[j] = i < args.width ? x[i] * inverse * args.weight[i] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (first + j * kThreads < args.width) y[first + j * kThreads] = values[j];
    }
  }
}

void run_rms_norm(const RmsNormArgs& args, Lane& lane) {
  const RmsNormRows rows{.x = args.x.f32(),
                         .add = args.add.empty() ? nullptr : args.add.f32(),
                         .weight = args.weight.f32(),
                         .y = args.y.f32(),
                         .first_bad = args.guard.first_bad.empty() ? nullptr : args.guard.first_bad.i32(),
                         .rms = args.guard.rms.empty() ? nullptr : args.guard.rms.f32(),
                         .width = args.x.dim(1),
                         .epsilon = args.epsilon,
                         .place = args.guard.place};
  launch(rms_norm_kernel, static_cast<unsigned>(args.x.dim(0)), kThreads, 0, stream_of(lane), rows);
}

}  // namespace

std::vector<Kernel<EmbedArgs>> embed_kernels() { return {{"embed.cuda", supports_any<>, no_workspace<EmbedArgs>, run_embed}}; }
std::vector<Kernel<GatherRowsArgs>> gather_rows_kernels() {
  return {{"gather_rows.cuda", supports_any<>, no_workspace<GatherRowsArgs>, run_gather_rows}};
}
std::vector<Kernel<SiluMulArgs>> silu_mul_kernels() { return {{"silu_mul.cuda", supports_any<>, no_workspace<SiluMulArgs>, run_silu_mul}}; }
std::vector<Kernel<AddBiasArgs>> add_bias_kernels() { return {{"add_bias.cuda", supports_any<>, no_workspace<AddBiasArgs>, run_add_bias}}; }
std::vector<Kernel<CombineArgs>> combine_kernels() { return {{"combine.cuda", supports_any<>, no_workspace<CombineArgs>, run_combine}}; }
Kernel<RmsNormArgs> rms_norm_generic() {
  return {"rms_norm.cuda", supports_any<kThreads / 32 * 4>, no_workspace<RmsNormArgs>, run_rms_norm};
}
std::vector<Kernel<RmsNormArgs>> rms_norm_kernels() { return {rms_norm_registers(), rms_norm_generic()}; }

}  // namespace reckoner::cuda
