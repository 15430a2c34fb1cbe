// latent_query and latent_value for many tokens and BF16 weights, through the matrix instruction: activations are rounded to BF16. Operands
// come straight from memory in pieces of sixteen bytes; which columns the instruction's indices stand for follows from that.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/weights.cuh"
#include "kernels/cuda/latent/latent.h"

namespace reckoner::cuda {
namespace {

constexpr int kTokens = 16;  // a block
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kQueryColumns = 64;  // a warp
constexpr int kValueRows = 32;     // of the weight, a warp

struct LatentShape {
  int tokens, heads, head_rows, nope, rope, latent;
};

__device__ std::uint32_t low_halves(std::uint32_t a, std::uint32_t b) { return __byte_perm(a, b, 0x5410); }
__device__ std::uint32_t high_halves(std::uint32_t a, std::uint32_t b) { return __byte_perm(a, b, 0x7632); }

__device__ void store_four(float* to, const float (&from)[4], float scale) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0] * scale, from[1] * scale, from[2] * scale, from[3] * scale);
}

// Of the 64 columns of a warp, tile j has the columns 8 g + j: a lane loads eight columns of a row at once.
__global__ void __launch_bounds__(kThreads) latent_query_mma_kernel(DeviceWeight w, const float* q, float* y, LatentShape shape) {
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int head = static_cast<int>(blockIdx.y), first_token = static_cast<int>(blockIdx.z) * kTokens;
  const int first_column = (static_cast<int>(blockIdx.x) * kWarps + warp) * kQueryColumns;
  const std::int64_t q_width = shape.nope + shape.rope, y_width = shape.latent + shape.rope;
  const auto row_of = [&](int token) { return std::int64_t{min(token, shape.tokens - 1)} * shape.heads + head; };
  const float* low = q + row_of(first_token + g) * q_width + 2 * t;
  const float* high = q + row_of(first_token + g + 8) * q_width + 2 * t;
  if (first_column < shape.latent) {
    const std::byte* weights = w.data + (std::int64_t{head} * shape.head_rows + 2 * t) * w.row_bytes + (first_column + g * 8) * 2;
    float sums[8][4] = {};
#pragma unroll 3
    for (int p = 0; p < shape.nope; p += 16) {
      uint4 rows[4];  // 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
      for (int i = 0; i < 4; ++i) rows[i] = *reinterpret_cast<const uint4*>(weights + (p + i % 2 + i / 2 * 8) * w.row_bytes);
      std::uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = *reinterpret_cast<const float2*>((i % 2 == 0 ? low : high) + p + i / 2 * 8);
        a[i] = round_pair(pair.x, pair.y);
      }
      const std::uint32_t words[4][4] = {{rows[0].x, rows[0].y, rows[0].z, rows[0].w},
                                         {rows[1].x, rows[1].y, rows[1].z, rows[1].w},
                                         {rows[2].x, rows[2].y, rows[2].z, rows[2].w},
                                         {rows[3].x, rows[3].y, rows[3].z, rows[3].w}};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        mma_bf16(sums[2 * j], a[0], a[1], a[2], a[3], low_halves(words[0][j], words[1][j]), low_halves(words[2][j], words[3][j]));
        mma_bf16(sums[2 * j + 1], a[0], a[1], a[2], a[3], high_halves(words[0][j], words[1][j]), high_halves(words[2][j], words[3][j]));
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = first_token + g + half * 8;
      if (token >= shape.tokens) continue;
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {  // columns 8 (2t + odd) + j
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
          const int i = half * 2 + odd;
          const float four[4] = {sums[j][i], sums[j + 1][i], sums[j + 2][i], sums[j + 3][i]};
          store_four(y + row_of(token) * y_width + first_column + (2 * t + odd) * 8 + j, four, w.scale);
        }
      }
    }
  }
  let_next_begin();
  if (blockIdx.x != 0) return;
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * shape.rope; i += kThreads) {
    const int token = first_token + i / shape.rope, r = i % shape.rope;
    if (token < shape.tokens) y[row_of(token) * y_width + shape.latent + r] = q[row_of(token) * q_width + shape.nope + r];
  }
}

// Of 32 columns, those of the first instruction are the first four of each lane's eight, those of the second the others.
__global__ void __launch_bounds__(kThreads) latent_value_mma_kernel(DeviceWeight w, const float* x, float* y, LatentShape shape) {
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int head = static_cast<int>(blockIdx.y), first_token = static_cast<int>(blockIdx.z) * kTokens;
  const int values = shape.head_rows - shape.nope, first_value = (static_cast<int>(blockIdx.x) * kWarps + warp) * kValueRows;
  if (first_value >= values) return;
  const auto row_of = [&](int token) { return std::int64_t{min(token, shape.tokens - 1)} * shape.heads + head; };
  const float* inputs[2] = {x + row_of(first_token + g) * shape.latent + 8 * t, x + row_of(first_token + g + 8) * shape.latent + 8 * t};
  const std::byte* weights = w.data + (std::int64_t{head} * shape.head_rows + shape.nope + first_value + g) * w.row_bytes + 16 * t;
  float sums[4][4] = {};
#pragma unroll 2
  for (int c = 0; c < shape.latent; c += 32) {
    uint4 rows[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) rows[n] = *reinterpret_cast<const uint4*>(weights + n * 8 * w.row_bytes + c * 2);
    std::uint32_t a[2][4];  // pairs of the lane's columns, by row
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 front = *reinterpret_cast<const float4*>(inputs[half] + c),
                   back = *reinterpret_cast<const float4*>(inputs[half] + c + 4);
      a[half][0] = round_pair(front.x, front.y), a[half][1] = round_pair(front.z, front.w);
      a[half][2] = round_pair(back.x, back.y), a[half][3] = round_pair(back.z, back.w);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      mma_bf16(sums[n], a[0][0], a[1][0], a[0][1], a[1][1], rows[n].x, rows[n].y);
      mma_bf16(sums[n], a[0][2], a[1][2], a[0][3], a[1][3], rows[n].z, rows[n].w);
    }
  }
  let_next_begin();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = first_token + g + half * 8;
    if (token >= shape.tokens) continue;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float* to = y + row_of(token) * values + first_value + n * 8 + 2 * t;
      *reinterpret_cast<float2*>(to) = make_float2(sums[n][half * 2] * w.scale, sums[n][half * 2 + 1] * w.scale);
    }
  }
}

constexpr std::int64_t kLeastTokens = 9;

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

}  // namespace

bool fits_latent_mma(const LatentQueryArgs& args) {
  return args.precision == Precision::fast && args.kv_b.format == QuantFormat::bf16 && args.q.dim(0) >= kLeastTokens &&
         args.nope % 16 == 0 && args.q.dim(2) % 4 == 0 && args.kv_b.cols % kQueryColumns == 0 && is_aligned(args.kv_b.data) &&
         is_aligned(args.q.data) && is_aligned(args.y.data);
}

void run_latent_mma(const LatentQueryArgs& args, Lane& lane) {
  const std::int64_t heads = args.q.dim(1);
  const LatentShape shape{.tokens = static_cast<int>(args.q.dim(0)),
                          .heads = static_cast<int>(heads),
                          .head_rows = static_cast<int>(args.kv_b.rows / heads),
                          .nope = static_cast<int>(args.nope),
                          .rope = static_cast<int>(args.q.dim(2) - args.nope),
                          .latent = static_cast<int>(args.kv_b.cols)};
  const dim3 grid(blocks_for(shape.latent, kWarps * kQueryColumns), static_cast<unsigned>(heads), blocks_for(shape.tokens, kTokens));
  launch(latent_query_mma_kernel, grid, kThreads, 0, stream_of(lane), device_weight(args.kv_b), args.q.f32(), args.y.f32(), shape);
}

bool fits_latent_mma(const LatentValueArgs& args) {
  return args.precision == Precision::fast && args.kv_b.format == QuantFormat::bf16 && args.x.dim(0) >= kLeastTokens &&
         args.kv_b.cols % 32 == 0 && args.y.dim(2) % kValueRows == 0 && is_aligned(args.kv_b.data) && is_aligned(args.x.data) &&
         is_aligned(args.y.data);
}

void run_latent_mma(const LatentValueArgs& args, Lane& lane) {
  const std::int64_t heads = args.x.dim(1);
  const LatentShape shape{.tokens = static_cast<int>(args.x.dim(0)),
                          .heads = static_cast<int>(heads),
                          .head_rows = static_cast<int>(args.kv_b.rows / heads),
                          .nope = static_cast<int>(args.nope),
                          .rope = 0,
                          .latent = static_cast<int>(args.kv_b.cols)};
  const dim3 grid(blocks_for(args.y.dim(2), kWarps * kValueRows), static_cast<unsigned>(heads), blocks_for(shape.tokens, kTokens));
  launch(latent_value_mma_kernel, grid, kThreads, 0, stream_of(lane), device_weight(args.kv_b), args.x.f32(), args.y.f32(), shape);
}

}  // namespace reckoner::cuda
